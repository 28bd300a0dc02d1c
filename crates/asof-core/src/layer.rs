//! Sources around sources.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    Batch, Batches, FileOrder, FileParts, Follow, Growth, Index, Problem, Progress, Query,
    ReadStats, Source, SourceError, Stamp, Summary, Topics,
};

/// A source around another one: it names that one and what it changes, and everything else is forwarded.
///
/// Each method of [`Source`] is here once more and asks [`inner`](SourceLayer::inner); a type with this trait is a
/// `Source`. A layer that changes messages also changes [`index`](SourceLayer::index),
/// [`parts`](SourceLayer::parts) and [`file_order`](SourceLayer::file_order), which speak of the same messages: the
/// contract suite (`asof_core::testing`) compares them.
///
/// Implement it by its path, and ask the source within through `inner`: where both traits are in scope, the compiler does
/// not know which `read` of a pointer is meant.
///
/// ```
/// # use std::sync::Arc;
/// use asof_core::{DerivedSummary, Source, Summary};
///
/// /// A source of which the robot is known.
/// struct Named {
///     source: Arc<dyn Source>,
///     robot: String,
///     summary: DerivedSummary,
/// }
///
/// impl asof_core::SourceLayer for Named {
///     type Inner = dyn Source;
///
///     fn inner(&self) -> &Self::Inner {
///         &*self.source
///     }
///
///     fn summary(&self) -> Arc<Summary> {
///         let robot = || self.robot.clone();
///         self.summary.changed(self.inner().summary(), |summary| summary.library = robot())
///     }
/// }
/// ```
pub trait SourceLayer: Send + Sync {
    /// The type of the source within.
    type Inner: Source + ?Sized;

    /// The source within.
    fn inner(&self) -> &Self::Inner;

    /// See [`Source::summary`]. [`DerivedSummary`] keeps one that is made from the inner one.
    fn summary(&self) -> Arc<Summary> {
        self.inner().summary()
    }

    /// See [`Source::read`].
    ///
    /// # Errors
    /// As there.
    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        self.inner().read(query)
    }

    /// See [`Source::latest_at`].
    ///
    /// # Errors
    /// As there.
    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        self.inner().latest_at(topics, at)
    }

    /// See [`Source::growth`].
    fn growth(&self) -> Growth {
        self.inner().growth()
    }

    /// See [`Source::follow`].
    ///
    /// # Errors
    /// As there.
    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        self.inner().follow(query)
    }

    /// See [`Source::index`].
    fn index(&self) -> Option<&dyn Index> {
        self.inner().index()
    }

    /// See [`Source::parts`].
    fn parts(&self) -> Option<&dyn FileParts> {
        self.inner().parts()
    }

    /// See [`Source::file_order`].
    fn file_order(&self) -> Option<&dyn FileOrder> {
        self.inner().file_order()
    }

    /// See [`Source::check`].
    ///
    /// # Errors
    /// As there.
    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        self.inner().check(progress)
    }

    /// See [`Source::verify`].
    ///
    /// # Errors
    /// As there.
    fn verify(&self) -> Result<(), SourceError> {
        self.inner().verify()
    }

    /// See [`Source::read_stats`].
    fn read_stats(&self) -> Option<ReadStats> {
        self.inner().read_stats()
    }
}

// The lint is an error for each method of `Source` that is not here: no layer can lose one.
#[deny(clippy::missing_trait_methods)]
impl<L: SourceLayer> Source for L {
    fn summary(&self) -> Arc<Summary> {
        SourceLayer::summary(self)
    }

    fn read(&self, query: &Query) -> Result<Batches, SourceError> {
        SourceLayer::read(self, query)
    }

    fn latest_at(&self, topics: &Topics, at: Stamp) -> Result<Batch, SourceError> {
        SourceLayer::latest_at(self, topics, at)
    }

    fn growth(&self) -> Growth {
        SourceLayer::growth(self)
    }

    fn follow(&self, query: &Query) -> Result<Box<dyn Follow>, SourceError> {
        SourceLayer::follow(self, query)
    }

    fn index(&self) -> Option<&dyn Index> {
        SourceLayer::index(self)
    }

    fn parts(&self) -> Option<&dyn FileParts> {
        SourceLayer::parts(self)
    }

    fn file_order(&self) -> Option<&dyn FileOrder> {
        SourceLayer::file_order(self)
    }

    fn check(&self, progress: Progress<'_>) -> Result<Vec<Problem>, SourceError> {
        SourceLayer::check(self, progress)
    }

    fn verify(&self) -> Result<(), SourceError> {
        SourceLayer::verify(self)
    }

    fn read_stats(&self) -> Option<ReadStats> {
        SourceLayer::read_stats(self)
    }
}

/// A pointer to a source changes nothing.
impl<S: Source + ?Sized> SourceLayer for Arc<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        self
    }
}

/// A pointer to a source changes nothing.
impl<S: Source + ?Sized> SourceLayer for Box<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        self
    }
}

/// A summary that is made from those of other sources, and kept until one of them changes.
#[derive(Debug, Default)]
pub struct DerivedSummary(Mutex<Option<Derivation>>);

#[derive(Debug)]
struct Derivation {
    from: Vec<Arc<Summary>>,
    summary: Arc<Summary>,
}

impl DerivedSummary {
    /// The summary made from these: the same one as last time if all of them are.
    pub fn of(
        &self,
        from: Vec<Arc<Summary>>,
        make: impl FnOnce(&[Arc<Summary>]) -> Summary,
    ) -> Arc<Summary> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*made
            && made.from.len() == from.len()
            && made.from.iter().zip(&from).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return Arc::clone(&made.summary);
        }
        let summary = Arc::new(make(&from));
        *made = Some(Derivation {
            from,
            summary: Arc::clone(&summary),
        });
        summary
    }

    /// The summary of one source, changed; as [`of`](Self::of).
    pub fn changed(&self, from: Arc<Summary>, change: impl FnOnce(&mut Summary)) -> Arc<Summary> {
        self.of(vec![from], |from| {
            let mut summary = Summary::clone(&from[0]);
            change(&mut summary);
            summary
        })
    }
}
