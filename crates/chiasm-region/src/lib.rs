//! The shared memory of one instance: its file, its locks, its blocks. Unsafe fence 1.
