package transform

import (
	"errors"
	"runtime/debug"
)

// errGoexit is what becomes of a call of runtime.Goexit within f.
var errGoexit = errors.New("runtime.Goexit was called")

// Isolated runs f on a goroutine of its own, so that code which ends its goroutine does
// not end the one that asked. A panic, with its stack, and runtime.Goexit become errors.
// A stack overflow and want of memory end the process: Go lets nobody recover from them.
func Isolated[T any](f func() (T, error)) (T, error) {
	type answer struct {
		out T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		a := answer{err: errGoexit}
		defer func() {
			if p := recover(); p != nil {
				a = answer{err: panicked(p, debug.Stack())}
			}
			done <- a
		}()
		var out T
		var err error
		out, err = f()
		a = answer{out, err}
	}()
	a := <-done
	return a.out, a.err
}
