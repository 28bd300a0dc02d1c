//! Why something could not be done.

use std::io;
use std::path::Path;

use arrow_schema::ArrowError;
use asof_decode::{PathError, RowsError, TableError, TypedError};
use asof_formats::{ConvertError, McapWriteError};

use crate::SourceError;
use crate::align::AlignError;
#[cfg(feature = "lerobot")]
use crate::lerobot::LerobotError;

/// Why something could not be done. The text names a way on where there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A topic or a field does not exist, or cannot be decoded.
    #[error(transparent)]
    Rows(#[from] RowsError),
    /// A path does not exist in a message.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A table cannot be made.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Messages do not fit the struct.
    #[error(transparent)]
    Typed(#[from] TypedError),
    /// Topics cannot be put side by side.
    #[error(transparent)]
    Align(#[from] AlignError),
    /// A recording cannot be copied.
    #[error(transparent)]
    Convert(#[from] ConvertError),
    /// An MCAP file cannot be written.
    #[error(transparent)]
    Write(#[from] McapWriteError),
    /// A file cannot be written or read.
    #[error("{message}")]
    File {
        /// What, and a way on.
        message: String,
        /// The system's error, if there is one.
        #[source]
        cause: Option<io::Error>,
    },
    /// An option cannot be followed.
    #[error("{0}")]
    Option(String),
    /// Something is not as it must be.
    #[error("{0}")]
    Invalid(String),
    /// More is known about where it went wrong.
    #[error("{message}")]
    In {
        /// Where, and what.
        message: String,
        /// What went wrong there.
        #[source]
        cause: Box<Error>,
    },
    /// A robot cannot be reached, or does not publish a topic.
    #[cfg(feature = "live")]
    #[error(transparent)]
    Robot(#[from] asof_live::LiveError),
    /// A robot cannot be recorded.
    #[cfg(feature = "live")]
    #[error(transparent)]
    Record(#[from] asof_record::RecordError),
    /// A catalogue cannot be read or written.
    #[cfg(feature = "fleet")]
    #[error(transparent)]
    Catalogue(#[from] asof_catalogue::CatalogueError),
    /// A query cannot be answered.
    #[cfg(feature = "sql")]
    #[error(transparent)]
    Sql(#[from] asof_sql::SqlError),
    /// A dataset cannot be written.
    #[cfg(feature = "lerobot")]
    #[error(transparent)]
    Lerobot(#[from] LerobotError),
    /// Arrow refused a table.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// Parquet refused a table.
    #[cfg(feature = "export")]
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
    /// The system refused to write.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// What could not be done with a file, and the system's reason.
    pub(crate) fn file(message: impl Into<String>, cause: impl Into<Option<io::Error>>) -> Self {
        let (mut message, cause) = (message.into(), cause.into());
        if let Some(cause) = &cause {
            message = format!("{message}: {cause}");
        }
        Error::File { message, cause }
    }

    /// Whether the caller stopped it.
    pub fn is_cancelled(&self) -> bool {
        let of_source = |error: &SourceError| matches!(error, SourceError::Cancelled);
        let of_table =
            |error: &TableError| matches!(error, TableError::Source(error) if of_source(error));
        let of_rows =
            |error: &RowsError| matches!(error, RowsError::Table(error) if of_table(error));
        let of_align = |error: &AlignError| match error {
            AlignError::Source(error) => of_source(error),
            AlignError::Rows(error) => of_rows(error),
            _ => false,
        };
        match self {
            Error::In { cause, .. } => cause.is_cancelled(),
            Error::Source(error) | Error::Convert(ConvertError::Read(error)) => of_source(error),
            Error::Table(error) => of_table(error),
            Error::Rows(error) => of_rows(error),
            Error::Align(error) => of_align(error),
            #[cfg(feature = "fleet")]
            Error::Catalogue(asof_catalogue::CatalogueError::Store(error)) => of_source(error),
            #[cfg(feature = "lerobot")]
            Error::Lerobot(error) => match error {
                LerobotError::Cancelled => true,
                LerobotError::Source(error) => of_source(error),
                LerobotError::Align(error) => of_align(error),
                _ => false,
            },
            _ => false,
        }
    }

    /// The same, saying which file it was.
    pub(crate) fn at(self, path: &Path) -> Self {
        let message = format!("{}: {self}", path.display());
        self.context(message)
    }

    /// The same under another line.
    pub(crate) fn context(self, message: String) -> Self {
        Error::In {
            message,
            cause: Box::new(self),
        }
    }
}
