package message

import "sync"

// To allocate memory for a large batch costs a proxy as much time as to read it: the memory is cleared, and comes from
// the system page by page. So the memory of large replies is used again.

// leastReused is the size from which memory is used again, and a multiple of which is allocated.
const leastReused = 1 << 20

var reused sync.Pool // of *[]byte

// Buffer returns memory of any content.
func Buffer(size int) []byte {
	if size < leastReused {
		return make([]byte, size)
	}
	if b, ok := reused.Get().(*[]byte); ok && cap(*b) >= size {
		return (*b)[:size]
	}
	return make([]byte, size, (size+leastReused-1)/leastReused*leastReused)
}

// Reuse takes memory that nothing refers to any longer, such as the Body of a message that was read into a Buffer.
func Reuse(b []byte) {
	if b = b[:0]; cap(b) >= leastReused {
		reused.Put(&b)
	}
}
