//! Options of the library by their words on the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A word, what help says about it, and what it means.
pub type Choice<T> = (&'static str, &'static str, T);

/// Takes one of these words.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let words = choices.iter().map(|&(word, help, _)| {
        let value = PossibleValue::new(word);
        if help.is_empty() {
            value
        } else {
            value.help(help)
        }
    });
    PossibleValuesParser::new(words).try_map(|given| {
        let meant = choices.iter().find(|(word, ..)| *word == given);
        meant.map(|&(.., meant)| meant).ok_or("it is unknown")
    })
}
