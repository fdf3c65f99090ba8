// Package watchedfile parses one value from some files and reads them again after a change. So
// operators can replace keys, certificates and passwords without a restart.
//
// Get reads the files when the value is used, at most once a second, so no goroutine is needed. It
// compares the content and not the times, because times cannot distinguish two writes within one
// clock tick. If files become unreadable, or do not fit together yet, the former value stays in
// force. Each new reason is logged once.
//
// It does not know the content of the files. The caller's parse function reads them, and its errors
// must not quote secrets. Begin to read at Open and Value.Get.
//
// It is not for users and may change with any version.
package watchedfile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// lookEvery is the minimum interval between two reads.
	lookEvery = time.Second
	// maxBytes is the maximum size of a file.
	maxBytes = 4 << 20
)

// File is one file with its required permissions.
type File struct {
	path    string
	secret  bool // only its owner may write it
	private bool // other users should not read it
	own     bool // written by this process
}

// Own returns a file that this process wrote. It is refused if other users can write it, or if it
// belongs to a user other than root and the one of the process.
func Own(path string) File { return File{path: path, secret: true, own: true} }

// Secret returns a password, key or token file. A file that users other than its owner can write is
// refused. The log warns about a file that every user can read.
func Secret(path string) File { return File{path: path, secret: true, private: true} }

// Trusted returns a file that is refused if users other than its owner can write it, but that is no
// secret. Authorities are such files, because they decide which callers are admitted.
func Trusted(path string) File { return File{path: path, secret: true} }

// Public returns a file that proves nothing by itself, such as a certificate next to its key.
func Public(path string) File { return File{path: path} }

// Value is a value parsed from files. It is safe for concurrent use.
type Value[T any] struct {
	what  string
	files []File
	parse func(texts [][]byte) (T, error)
	log   *zap.Logger
	// narrow returns the part of a value that texts still have; nil: the whole value.
	narrow func(value T, texts [][]byte) T

	mu        sync.Mutex
	value     T
	digest    [sha256.Size]byte // of the texts behind value
	looked    time.Time
	warned    map[string]bool // files that every user can read
	complaint string          // last logged error; empty while the files are good
}

// Open reads the files for the first time, and returns an error if that fails. what names the value
// in messages. parse receives the texts in the order of files. A nil log discards messages.
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

// Narrowed has a value that grants something follow removals in files that others can write. Such
// files are refused, and cannot add to the value. But a grant that an operator removed must not stay
// in force because of the mode of the file. narrow returns the part of a value that is in the texts
// too. Call it before the first Get.
func (v *Value[T]) Narrowed(narrow func(value T, texts [][]byte) T) { v.narrow = narrow }

// Get returns the value of the files as of at most a second ago. It returns the same value until
// the content changes.
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
	// Log a reason only when it is new: a broken file would log every second.
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

// look reads the files, and replaces the value if their content changed.
func (v *Value[T]) look() (changed bool, err error) {
	// Also before a failure, so that a broken file is not read for every call.
	v.looked = time.Now()
	texts, err := Read(v.what, v.files...)
	v.exposed()
	if v.narrow != nil && errors.Is(err, errWritable) {
		return false, errors.Join(v.narrowed(), err)
	}
	if err != nil {
		return false, err
	}
	digest := Digest(texts)
	if digest == v.digest {
		return false, nil
	}
	// Keep the old digest if this fails, so that the next look parses again.
	value, err := v.parse(texts)
	if err != nil {
		return false, fmt.Errorf("%s: %w", v.what, err)
	}
	v.value, v.digest = value, digest
	return true, nil
}

// Digest returns a digest of texts in their order.
func Digest(texts [][]byte) [sha256.Size]byte {
	sum := sha256.New()
	for _, text := range texts {
		// With the length, so that moving text between two files changes the sum.
		fmt.Fprintf(sum, "%d\n%s", len(text), text)
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// narrowed applies removals in files that others can write.
func (v *Value[T]) narrowed() error {
	files := slices.Clone(v.files)
	for i := range files {
		files[i].secret = false
	}
	texts, err := Read(v.what, files...)
	if err != nil {
		return err
	}
	// Parse the files again once they are accepted.
	v.value, v.digest = v.narrow(v.value, texts), [sha256.Size]byte{}
	return nil
}

// errWritable is the reason to refuse a file that users other than its owner can write.
var errWritable = errors.New("can be written by others than its owner: chmod go-w it")

// exposed warns once about each secret that every user of the machine can read. Such files are not
// refused, because Kubernetes creates them so, unless the volume's defaultMode is changed.
func (v *Value[T]) exposed() {
	for _, f := range v.files {
		open := f.Exposed()
		if open && !v.warned[f.path] {
			v.log.Warn(ExposedText, zap.String("what", v.what), zap.String("file", f.path))
		}
		v.warned[f.path] = open
	}
}

// ExposedText is the warning about a secret that every user of the machine can read.
const ExposedText = "everybody on this machine can read a secret: chmod o-r it"

// Exposed reports whether the file is a secret that every user of the machine can read.
func (f File) Exposed() bool {
	info, err := os.Stat(f.path)
	return err == nil && f.private && hasModes && info.Mode().Perm()&0o004 != 0
}

// Read reads files once, with the same checks as Open.
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

// read checks the permissions and returns the content.
func (f File) read() ([]byte, error) {
	// Check before opening, because opening a pipe would block. Stat follows links: secrets in
	// Kubernetes are symbolic links.
	info, err := os.Stat(f.path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory, want a file", f.path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", f.path)
	case f.secret && hasModes && info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s %w", f.path, errWritable)
	case f.own && !ours(info):
		return nil, fmt.Errorf("%s belongs to another user: remove it", f.path)
	}
	file, err := os.Open(f.path) // #nosec G304 -- the operator names it
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
