//! Why a request of the page is refused.

/// Why a request is refused: a sentence that the page shows to the user.
///
/// ```
/// use asof_serve::Refusal;
///
/// fn table(name: &str) -> Result<(), Refusal> {
///     Err(format!("there is no table '{name}'"))?
/// }
/// assert_eq!(table("odo").unwrap_err().to_string(), "there is no table 'odo'");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl From<String> for Refusal {
    fn from(sentence: String) -> Self {
        Refusal(sentence)
    }
}

impl From<&str> for Refusal {
    fn from(sentence: &str) -> Self {
        Refusal(sentence.to_owned())
    }
}
