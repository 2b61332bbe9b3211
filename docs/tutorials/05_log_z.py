# %% [markdown]
# # 05_log_z
# %%
print(1)
