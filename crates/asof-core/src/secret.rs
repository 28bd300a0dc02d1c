//! Secrets, compared.

/// Whether a given secret is the expected one. A wrong one takes as long as the right one: its time tells nothing.
///
/// ```
/// use asof_core::is_same_secret;
///
/// assert!(is_same_secret("open sesame", "open sesame"));
/// assert!(!is_same_secret("open sesamE", "open sesame"));
/// assert!(!is_same_secret("open", "open sesame"));
/// ```
pub fn is_same_secret(given: &str, secret: &str) -> bool {
    let differing = given.bytes().zip(secret.bytes()).map(|(a, b)| a ^ b);
    given.len() == secret.len() && differing.fold(0, |all, bits| all | bits) == 0
}
