//! New files: recordings converted, split and recovered, and files that appear complete or not at all.

mod bag_metadata;
mod convert;
mod new_file;
mod split;
mod temporary;
mod writing;

pub use convert::{ConvertOptions, RecoverOptions, Recovered};
#[cfg(feature = "export")]
pub(crate) use new_file::unfinished_file;
pub use new_file::{
    Appender, NewFile, before_temporary_files, beside, note_input, refuse_same, remove_unfinished,
};
pub use split::{Cut, SplitOptions, SplitPart, SplitReport};
pub use temporary::{TemporaryFolder, remove_abandoned};
#[cfg(feature = "export")]
pub(crate) use writing::folder_of;
pub use writing::{Written, refuse_input, refuse_other_format};
