package access

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// lookEvery is how often a file is looked at, when it is used.
const lookEvery = time.Second

// longestFile bounds what is read of a file.
const longestFile = 4 << 20

// watched is what some files say together, read again when one of them changed. They are
// looked at when they are used, so that nothing has to run beside. Files that cannot be
// read any more, or do not fit together yet, leave what they said before.
type watched[T any] struct {
	what  string
	paths []string
	log   *zap.Logger
	parse func(texts [][]byte) (T, error)

	mu     sync.Mutex
	value  T
	stamp  []fileStamp
	looked time.Time
	said   string // the last complaint
}

// fileStamp tells two states of a file apart. Secrets of Kubernetes are symbolic links
// that are exchanged, which Stat follows.
type fileStamp struct {
	size  int64
	mod   time.Time
	inode any
}

// watch reads files for the first time, when they have to be right.
func watch[T any](what string, log *zap.Logger, parse func([][]byte) (T, error), paths ...string) (*watched[T], error) {
	w := &watched[T]{what: what, paths: paths, log: log, parse: parse}
	if w.log == nil {
		w.log = zap.NewNop()
	}
	var err error
	if w.stamp, err = w.look(); err != nil {
		return nil, err
	}
	if w.value, err = w.read(); err != nil {
		return nil, err
	}
	w.looked = time.Now()
	return w, nil
}

func (w *watched[T]) look() ([]fileStamp, error) {
	var stamps []fileStamp
	for _, path := range w.paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.what, err)
		}
		switch {
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s: %s is no file", w.what, path)
		case info.Mode().Perm()&0o022 != 0:
			return nil, fmt.Errorf("%s: %s can be written by others than its owner: chmod go-w it", w.what, path)
		case info.Size() > longestFile:
			return nil, fmt.Errorf("%s: %s has more than %d bytes", w.what, path, longestFile)
		}
		stamps = append(stamps, fileStamp{size: info.Size(), mod: info.ModTime(), inode: inodeOf(info)})
	}
	return stamps, nil
}

func (w *watched[T]) read() (T, error) {
	var none T
	texts := make([][]byte, len(w.paths))
	for i, path := range w.paths {
		var err error
		if texts[i], err = os.ReadFile(path); err != nil {
			return none, fmt.Errorf("%s: %w", w.what, err)
		}
	}
	v, err := w.parse(texts)
	if err != nil {
		return none, fmt.Errorf("%s: %w", w.what, err)
	}
	return v, nil
}

// get is what the files say now, as of at most lookEvery ago.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.looked) < lookEvery {
		return w.value
	}
	w.looked = time.Now()
	stamp, err := w.look()
	if err == nil && slices.Equal(stamp, w.stamp) {
		return w.value
	}
	if err == nil {
		var v T
		if v, err = w.read(); err == nil {
			w.value, w.stamp, w.said = v, stamp, ""
			w.log.Info("files changed and were read again", zap.String("what", w.what), zap.Strings("files", w.paths))
			return w.value
		}
	}
	if err.Error() != w.said {
		w.said = err.Error()
		w.log.Warn("files changed and cannot be used: what was read before stays in force", zap.String("what", w.what), zap.Error(err))
	}
	return w.value
}
