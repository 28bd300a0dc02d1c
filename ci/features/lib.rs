//! Empty: the manifest is what this package is for.
