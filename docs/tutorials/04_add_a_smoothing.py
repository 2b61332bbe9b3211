# %% [markdown]
# # 04_add_a_smoothing
# %%
print(1)
