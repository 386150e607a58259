"""Pure gate rules: routes, the typed Docker API, decisions."""
