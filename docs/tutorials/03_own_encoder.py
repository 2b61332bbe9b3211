# %% [markdown]
# # 03_own_encoder
# %%
print(1)
