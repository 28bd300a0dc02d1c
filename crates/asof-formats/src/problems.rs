//! A bounded list of problems.

use asof_core::{Problem, ProblemKind};

/// Collects problems without duplicates, and counts those beyond the limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Problems {
    listed: Vec<Problem>,
    omitted: u64,
}

/// The most problems that are listed; the rest is counted.
const LISTED_AT_MOST: usize = 1000;

impl Problems {
    /// Adds a problem unless it is known; returns whether it was new.
    pub fn push(&mut self, problem: Problem) -> bool {
        if self.listed.contains(&problem) {
            return false;
        }
        if self.listed.len() < LISTED_AT_MOST {
            self.listed.push(problem);
        } else {
            self.omitted += 1;
        }
        true
    }

    pub fn extend(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            self.push(problem);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// The listed problems, and one that counts the others.
    pub fn to_vec(&self) -> Vec<Problem> {
        let more = (self.omitted > 0).then(|| {
            Problem::whole(
                ProblemKind::Incomplete,
                format!("{} further problems are not listed", self.omitted),
            )
        });
        self.listed.iter().cloned().chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_problems_is_counted_and_a_repeated_one_is_not_news() {
        let mut problems = Problems::default();
        for offset in 0..1500 {
            assert!(problems.push(Problem::at(ProblemKind::Garbage, offset, "x")));
        }
        assert!(!problems.push(Problem::at(ProblemKind::Garbage, 3, "x")));
        let all = problems.to_vec();
        assert_eq!(all.len(), LISTED_AT_MOST + 1);
        assert!(all[LISTED_AT_MOST].message.starts_with("500 further"));
    }
}
