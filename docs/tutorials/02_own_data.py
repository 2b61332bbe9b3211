# %% [markdown]
# # 02_own_data
# %%
print(1)
