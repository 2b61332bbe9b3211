# %% [markdown]
# # 01_first_model
# %%
print(1)
