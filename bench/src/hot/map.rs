//! Maps of 4 MB: handing one over, and changing a hundredth of it.

use std::hint::black_box;
use std::sync::Arc;

use asof_hot::MonoStamp;

use super::cores::on_one_core;
use super::cpp;
use crate::harness::{Bench, Contender, contender};

const CELLS: usize = 4 << 20;
const TILE: usize = 4096;
const TILES: usize = CELLS / TILE;
const EDITED: usize = TILES / 100;
const COUNT: u64 = 20_000;
const EDITS: u64 = 20;

pub fn run(bench: &Bench) {
    if bench.wants("map_4m_publish_acquire") {
        bench.case("map_4m_publish_acquire", "ns", 60, publish_acquire());
    }
    if bench.wants("map_4m_edit_1_percent") {
        bench.case("map_4m_edit_1_percent", "ns", 15, edit());
    }
}

fn map() -> Vec<u8> {
    vec![7; CELLS]
}

/// A contender: an operation that can be repeated.
fn repeated(
    name: &'static str,
    count: u64,
    mut once: impl FnMut(u64) + Send + 'static,
) -> Contender<'static> {
    let mut number = 0;
    contender(name, move || {
        let work = || {
            for _ in 0..count {
                number += 1;
                once(number);
            }
        };
        on_one_core(work, count)
    })
}

fn publish_acquire() -> Vec<Contender<'static>> {
    let (mut writer, [mut reader]) = asof_hot::snapshot::<Vec<u8>, 1>(map);
    let (mut input, mut output) = triple_buffer::triple_buffer(&map());
    let (mut write, read) = left_right::new_from_empty::<Map, Edit>(Map(map()));
    write.publish();
    let swap = arc_swap::ArcSwap::from_pointee(map());
    let std_mutex = std::sync::Mutex::new(map());
    let parking_lot = parking_lot::Mutex::new(map());
    let cpp_map = Arc::new(cpp::Object::new(cpp::cpp_map_new, cpp::cpp_map_delete));
    vec![
        repeated("asof", COUNT, move |number| {
            writer.back()[0] = number as u8;
            writer.publish(MonoStamp(number));
            black_box(reader.latest()[0]);
        }),
        repeated("triple_buffer", COUNT, move |number| {
            input.input_buffer_mut()[0] = number as u8;
            input.publish();
            black_box(output.read()[0]);
        }),
        repeated("left-right", COUNT, move |number| {
            write.append(Edit {
                tile: 0,
                value: number as u8,
                is_small: true,
            });
            write.publish();
            black_box(read.enter().map(|map| map.0[0]));
        }),
        repeated("arc-swap", 4, move |number| {
            let mut next = map();
            next[0] = number as u8;
            swap.store(Arc::new(next));
            black_box(swap.load()[0]);
        }),
        repeated("std_mutex", COUNT, move |number| {
            std_mutex.lock().expect("nobody panics")[0] = number as u8;
            black_box(std_mutex.lock().expect("nobody panics")[0]);
        }),
        repeated("parking_lot", COUNT, move |number| {
            parking_lot.lock()[0] = number as u8;
            black_box(parking_lot.lock()[0]);
        }),
        contender("cpp!racy", move || {
            let map = cpp_map.clone();
            // SAFETY: the object is alive, and used by one thread.
            on_one_core(
                move || unsafe { cpp::cpp_map_publish_acquire(map.pointer, COUNT) },
                COUNT,
            )
        }),
    ]
}

/// The tiles that an edit changes, by its number: scattered, some of them repeatedly.
fn edited(number: u64) -> impl Iterator<Item = usize> {
    (0..EDITED).map(move |index| ((number as usize * 13) + index * 97) % TILES)
}

fn edit() -> Vec<Contender<'static>> {
    let (mut writer, [mut reader]) = asof_hot::tile_map::<u8, 1>(CELLS, TILE, 7);
    let (mut input, mut output) = triple_buffer::triple_buffer(&map());
    let mut master = map();
    let (mut write, read) = left_right::new_from_empty::<Map, Edit>(Map(map()));
    write.publish();
    let swap = arc_swap::ArcSwap::from_pointee(map());
    let std_mutex = std::sync::Mutex::new(map());
    vec![
        repeated("asof", EDITS, move |number| {
            for tile in edited(number) {
                writer.tile_mut(tile).fill(number as u8);
            }
            writer.publish(MonoStamp(number));
            black_box(reader.latest()[0]);
        }),
        // Its buffers hold older maps, so the whole of the newest has to be copied in.
        repeated("triple_buffer", EDITS, move |number| {
            for tile in edited(number) {
                master[tile * TILE..(tile + 1) * TILE].fill(number as u8);
            }
            input.input_buffer_mut().copy_from_slice(&master);
            input.publish();
            black_box(output.read()[0]);
        }),
        repeated("left-right", EDITS, move |number| {
            for tile in edited(number) {
                write.append(Edit {
                    tile,
                    value: number as u8,
                    is_small: false,
                });
            }
            write.publish();
            black_box(read.enter().map(|map| map.0[0]));
        }),
        repeated("arc-swap", EDITS, move |number| {
            let mut next = Vec::clone(&swap.load());
            for tile in edited(number) {
                next[tile * TILE..(tile + 1) * TILE].fill(number as u8);
            }
            swap.store(Arc::new(next));
            black_box(swap.load()[0]);
        }),
        repeated("std_mutex", EDITS, move |number| {
            let mut map = std_mutex.lock().expect("nobody panics");
            for tile in edited(number) {
                map[tile * TILE..(tile + 1) * TILE].fill(number as u8);
            }
            black_box(map[0]);
        }),
    ]
}

#[derive(Clone)]
struct Map(Vec<u8>);

struct Edit {
    tile: usize,
    value: u8,
    is_small: bool,
}

impl left_right::Absorb<Edit> for Map {
    fn absorb_first(&mut self, edit: &mut Edit, _: &Self) {
        if edit.is_small {
            self.0[0] = edit.value;
        } else {
            self.0[edit.tile * TILE..(edit.tile + 1) * TILE].fill(edit.value);
        }
    }
    fn sync_with(&mut self, first: &Self) {
        self.0.copy_from_slice(&first.0);
    }
}
