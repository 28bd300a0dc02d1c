//! How two values are compared.

use std::cmp::Ordering;
use std::fmt;

/// How two values are compared, as conditions and triggers write it.
///
/// ```
/// use asof_core::Comparison;
///
/// let (comparison, rest) = Comparison::leading("<= 5").unwrap();
/// assert_eq!((comparison, rest), (Comparison::LessOrEqual, " 5"));
/// assert!(comparison.holds(4.cmp(&5)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// They are the same.
    Equal,
    /// They are not.
    NotEqual,
    /// The first is smaller.
    Less,
    /// It is not larger.
    LessOrEqual,
    /// It is larger.
    Greater,
    /// It is not smaller.
    GreaterOrEqual,
}

impl Comparison {
    /// What a sign stands for: `==` or `=`, `!=` or `<>`, `<`, `<=`, `>`, `>=`.
    pub fn of_sign(sign: &str) -> Option<Self> {
        Some(match sign {
            "==" | "=" => Comparison::Equal,
            "!=" | "<>" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }

    /// The comparison whose sign a text begins with, and the text after it.
    pub fn leading(text: &str) -> Option<(Self, &str)> {
        // Longer signs first: `<=` is not `<`.
        [2, 1].into_iter().find_map(|length| {
            let (sign, rest) = text.split_at_checked(length)?;
            Some((Self::of_sign(sign)?, rest))
        })
    }

    /// Whether it holds between two values of this order.
    pub const fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_is_read_back_and_a_longer_one_is_not_a_shorter() {
        for sign in ["==", "!=", "<", "<=", ">", ">="] {
            let text = format!("{sign}7");
            let (comparison, rest) = Comparison::leading(&text).expect("a sign");
            assert_eq!((comparison.to_string().as_str(), rest), (sign, "7"));
        }
        assert_eq!(
            Comparison::leading("<>7"),
            Some((Comparison::NotEqual, "7"))
        );
        assert_eq!(Comparison::leading("="), Some((Comparison::Equal, "")));
        for text in ["", "!", "é=", "7<", "!7"] {
            assert_eq!(Comparison::leading(text), None, "{text}");
        }
    }

    #[test]
    fn a_comparison_holds_for_the_orders_that_its_sign_says() {
        let orders = [1.cmp(&2), 2.cmp(&2), 3.cmp(&2)];
        for (sign, expected) in [
            ("==", [false, true, false]),
            ("!=", [true, false, true]),
            ("<", [true, false, false]),
            ("<=", [true, true, false]),
            (">", [false, false, true]),
            (">=", [false, true, true]),
        ] {
            let comparison = Comparison::of_sign(sign).expect("a sign");
            assert_eq!(
                orders.map(|order| comparison.holds(order)),
                expected,
                "{sign}"
            );
        }
    }
}
