//! Why a person is not given what they asked for.

/// Why there is no answer: a sentence that the page shows to the person who asked.
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
