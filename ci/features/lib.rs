//! Empty: this package consists of its manifest.
