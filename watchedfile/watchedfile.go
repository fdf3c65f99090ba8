// Package watchedfile has what some files say together, read again when they change, so that
// keys, certificates and passwords are replaced without a restart.
//
// Files are read when they are used, at most once a second, so that no goroutine is needed.
// They are compared by what they hold and not by their times, which cannot tell two writes
// within one tick apart. Files that cannot be read any longer, or do not fit together yet, leave
// the former value in force, with one line in the log for each new reason.
//
// It knows nothing about what files hold: that is up to the function that parses them, whose
// errors must not quote secrets.
//
// It is not for users and may change with any version.
package watchedfile

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// lookEvery is how often files are read at most.
	lookEvery = time.Second
	// maxBytes bounds what is read of a file.
	maxBytes = 4 << 20
)

// File is one file, and whether it matters who can write and read it.
type File struct {
	path    string
	secret  bool // only its owner may write it
	private bool // others had better not read it
}

// Secret is a file that is refused when others than its owner can write it: a password, a key, or
// tokens. The log warns when everybody can read it.
func Secret(path string) File { return File{path, true, true} }

// Trusted is a file that is refused when others than its owner can write it, and no secret:
// authorities, since who writes these decides who is let in.
func Trusted(path string) File { return File{path, true, false} }

// Public is a file that proves nothing by itself, such as a certificate next to its key.
func Public(path string) File { return File{path, false, false} }

// Value is what files say.
type Value[T any] struct {
	what  string
	files []File
	parse func(texts [][]byte) (T, error)
	log   *zap.Logger

	mu        sync.Mutex
	value     T
	digest    [sha256.Size]byte // of the texts that value was made of
	looked    time.Time
	warned    map[string]bool // files that everybody can read
	complaint string          // the latest that was logged; empty once the files are good again
}

// Open reads files for the first time, when they have to be right. what names them in
// messages. parse gets their texts in the order of the files. A nil log is none.
func Open[T any](what string, log *zap.Logger, parse func(texts [][]byte) (T, error), files ...File) (*Value[T], error) {
	if log == nil {
		log = zap.NewNop()
	}
	v := &Value[T]{what: what, files: files, parse: parse, log: log, warned: map[string]bool{}}
	if _, err := v.look(); err != nil {
		return nil, err
	}
	return v, nil
}

// Get returns what the files say now, as of at most a second ago. Until they say something
// else it is the very same value.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.looked) < lookEvery {
		return v.value
	}
	changed, err := v.look()
	if changed {
		v.log.Info("files changed and were read again", zap.String("what", v.what))
	}
	before := v.complaint
	v.complaint = ""
	if err != nil {
		v.complaint = err.Error()
	}
	if v.complaint != "" && v.complaint != before {
		v.log.Warn("files changed and cannot be used: what was read before stays in force", zap.String("what", v.what), zap.Error(err))
	}
	return v.value
}

// look reads the files, and takes the value over if they say something else than before.
func (v *Value[T]) look() (changed bool, err error) {
	v.looked = time.Now()
	texts, err := Read(v.what, v.files...)
	v.exposed()
	if err != nil {
		return false, err
	}
	sum := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(sum, "%d\n%s", len(text), text)
	}
	digest := [sha256.Size]byte(sum.Sum(nil))
	if digest == v.digest {
		return false, nil
	}
	value, err := v.parse(texts)
	if err != nil {
		return false, fmt.Errorf("%s: %w", v.what, err)
	}
	v.value, v.digest = value, digest
	return true, nil
}

// exposed warns once of secrets that everybody on the machine can read. They are not refused: that is
// how a volume of Kubernetes has them unless its defaultMode says otherwise.
func (v *Value[T]) exposed() {
	for _, f := range v.files {
		open := f.Exposed()
		if open && !v.warned[f.path] {
			v.log.Warn(ExposedText, zap.String("what", v.what), zap.String("file", f.path))
		}
		v.warned[f.path] = open
	}
}

// ExposedText is the warning of a secret that everybody on the machine can read.
const ExposedText = "everybody on this machine can read a secret: chmod o-r it"

// Exposed reports whether the file is a secret that everybody on the machine can read.
func (f File) Exposed() bool {
	info, err := os.Stat(f.path)
	return err == nil && f.private && info.Mode().Perm()&0o004 != 0
}

// Read reads files once, under the same bounds.
func Read(what string, files ...File) ([][]byte, error) {
	texts := make([][]byte, len(files))
	for i, f := range files {
		var err error
		if texts[i], err = f.read(); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	return texts, nil
}

func (f File) read() ([]byte, error) {
	// Before it is opened, which would wait at a pipe. Secrets of Kubernetes are symbolic links.
	info, err := os.Stat(f.path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory, want a file", f.path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", f.path)
	case f.secret && info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s can be written by others than its owner: chmod go-w it", f.path)
	}
	file, err := os.Open(f.path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("%s has more than %d bytes", f.path, maxBytes)
	}
	return text, err
}
