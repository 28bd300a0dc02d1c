//! A tokenizer for IDL.

use std::fmt;

use crate::error::SchemaError;

/// A word, a number, a quoted string, or a symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Literal(String),
    Sign(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Literal(text) => f.write_str(text),
            Token::Sign(sign) => f.write_str(sign),
        }
    }
}

/// The tokens of a text, read one by one.
pub(super) struct Tokens {
    tokens: Vec<(usize, Token)>,
    at: usize,
}

const SIGNS: [&str; 22] = [
    "::", "<<", "{", "}", "(", ")", "[", "]", "<", ">", ",", ";", ":", "=", "@", "+", "-", "*",
    "/", "|", "&", "~",
];

/// Splits a text into tokens; comments, preprocessor lines and the lines that rosbag2 puts between several files are
/// skipped.
pub(super) fn tokens(text: &str, language: &'static str) -> Result<Tokens, SchemaError> {
    let mut tokens = Vec::new();
    let mut is_comment = false;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let is_rule = trimmed.len() >= 3 && trimmed.trim_end().bytes().all(|byte| byte == b'=');
        if !is_comment && (trimmed.starts_with('#') || is_rule || trimmed.starts_with("IDL:")) {
            continue;
        }
        split_line(line, &mut is_comment, |token| {
            tokens.push((index + 1, token));
        })
        .map_err(|found| SchemaError::Syntax {
            language,
            line: index + 1,
            reason: format!("unexpected '{found}'"),
        })?;
    }
    Ok(Tokens { tokens, at: 0 })
}

fn split_line(line: &str, is_comment: &mut bool, mut push: impl FnMut(Token)) -> Result<(), char> {
    let mut rest = line;
    loop {
        if *is_comment {
            let Some(end) = rest.find("*/") else {
                return Ok(());
            };
            rest = &rest[end + 2..];
            *is_comment = false;
        }
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return Ok(());
        };
        if rest.starts_with("//") {
            return Ok(());
        }
        if let Some(inside) = rest.strip_prefix("/*") {
            *is_comment = true;
            rest = inside;
            continue;
        }
        if first == '"' || first == '\'' {
            let end = end_of_quote(rest, first);
            push(Token::Literal(rest[..end].to_owned()));
            rest = &rest[end..];
            continue;
        }
        if first.is_alphanumeric() || first == '_' {
            let is_number = first.is_ascii_digit();
            let end = rest
                .find(|c: char| !(c.is_alphanumeric() || c == '_' || is_number && c == '.'))
                .unwrap_or(rest.len());
            let text = rest[..end].to_owned();
            push(if is_number {
                Token::Literal(text)
            } else {
                Token::Word(text)
            });
            rest = &rest[end..];
            continue;
        }
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
        let Some(sign) = sign else { return Err(first) };
        push(Token::Sign(sign));
        rest = &rest[sign.len()..];
    }
}

/// The end of the quoted string that starts here; the end of the line if it is not closed.
fn end_of_quote(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if !is_escaped && c == quote {
            return at + c.len_utf8();
        }
        is_escaped = !is_escaped && c == '\\';
    }
    text.len()
}

impl Tokens {
    pub fn is_at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub fn line(&self) -> usize {
        let at = self.at.min(self.tokens.len().saturating_sub(1));
        self.tokens.get(at).map_or(1, |(line, _)| *line)
    }

    pub fn advance(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).map(|(_, token)| token.clone());
        self.at += 1;
        token
    }

    pub fn peek_text(&self) -> String {
        let token = self.tokens.get(self.at);
        token.map_or_else(|| "the end".to_owned(), |(_, token)| token.to_string())
    }

    /// Whether the next token is this symbol or word.
    pub fn peek_is(&self, text: &str) -> bool {
        match self.tokens.get(self.at) {
            Some((_, Token::Sign(sign))) => *sign == text,
            Some((_, Token::Word(word))) => word == text,
            _ => false,
        }
    }

    /// Takes the next token if it is this symbol or word.
    pub fn eat(&mut self, text: &str) -> bool {
        let is_it = self.peek_is(text);
        self.at += usize::from(is_it);
        is_it
    }

    /// Everything up to one of these symbols, with nested brackets skipped, as text.
    pub fn text_until(&mut self, ends: &[&str]) -> String {
        let mut text = String::new();
        let mut depth = 0usize;
        while let Some((_, token)) = self.tokens.get(self.at) {
            if let Token::Sign(sign) = token {
                if depth == 0 && ends.contains(sign) {
                    break;
                }
                match *sign {
                    "(" | "[" | "{" => depth += 1,
                    ")" | "]" | "}" => depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            let is_joined = matches!(token, Token::Sign("::" | "-"))
                || text.ends_with("::")
                || text.ends_with('-');
            if !text.is_empty() && !is_joined {
                text.push(' ');
            }
            text.push_str(&token.to_string());
            self.at += 1;
        }
        text
    }
}
