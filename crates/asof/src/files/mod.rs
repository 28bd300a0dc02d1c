//! New files: recordings converted, split and recovered, and files that appear complete or not at all.

mod bag_metadata;
mod convert;
mod new_file;
mod split;
mod writing;

pub use convert::{ConvertOptions, RecoverOptions, Recovered};
pub use new_file::{
    NewFile, before_temporary_files, beside, note_input, refuse_same, remove_unfinished,
    temporary_folder,
};
pub use split::{Cut, SplitOptions, SplitPart, SplitReport};
pub(crate) use writing::folder_of;
pub use writing::{Written, refuse_input, refuse_other_format};
