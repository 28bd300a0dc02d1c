// Stands in for two helpers of the studio's repository.

// The place of the smallest value by `by`; -1 if there is none.
export function minIndexBy(values, by) {
  let place = -1;
  let smallest = Infinity;
  values.forEach((value, index) => {
    const key = by(value);
    if (key < smallest) [place, smallest] = [index, key];
  });
  return place;
}

// Where `key` is among tuples sorted by their first element, or the complement of where it would go.
export function sortedIndexByTuple(tuples, key) {
  let low = 0;
  let high = tuples.length - 1;
  if (high < 0) return -1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const found = tuples[middle][0];
    if (found === key) return middle;
    if (found < key) low = middle + 1;
    else high = middle - 1;
  }
  return ~low;
}
