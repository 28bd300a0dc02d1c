//! New files: recordings converted, split and recovered, and files that appear complete or not at all.

mod bag_metadata;
mod convert;
mod new_file;
mod split;
mod temporary;
mod writing;

pub use convert::{ConvertOptions, RecoverOptions, RecoverReport};
#[cfg(feature = "lerobot")]
pub(crate) use new_file::folder_of;
#[cfg(feature = "export")]
pub(crate) use new_file::unfinished_file;
#[cfg(feature = "live")]
pub(crate) use new_file::unwritable;
pub use new_file::{
    Appender, NewFile, before_temporary_files, beside, note_input, refuse_same, remove_unfinished,
};
pub use split::{Cut, SplitOptions, SplitPart, SplitReport};
pub use temporary::{TemporaryFolder, remove_abandoned};
pub use writing::{ConvertReport, refuse_input, refuse_other_format};
