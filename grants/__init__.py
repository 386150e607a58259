"""Who may use which device: model, rules and the store under the lock."""
