package watchedfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dbcontroller.dev/internal/base/watchedfile"
)

// pair wants two texts that fit together.
func pair(texts [][]byte) (*string, error) {
	if string(texts[0]) != string(texts[1]) {
		return nil, errors.New("they do not fit together")
	}
	s := string(texts[0])
	return &s, nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFilesAreReadAgain: what files say follows them, and stays while they cannot be used,
// with one line in the log for each new reason.
func TestFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
		write(t, a, "one")
		write(t, b, "one")
		logs, seen := observer.New(zap.InfoLevel)
		v, err := watchedfile.Open("a pair", zap.New(logs), pair, watchedfile.Secret(a), watchedfile.Public(b))
		if err != nil {
			t.Fatal(err)
		}
		first := v.Get()
		write(t, a, "two")
		write(t, b, "two")
		if v.Get() != first {
			t.Error("files are read twice within a second")
		}
		remove := func(path string) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			what   string
			change func()
			want   string
			line   string // that is new in the log; empty: none is
		}{
			{"both changed", func() {}, "two", "were read again"},
			{"written once more as they were", func() { write(t, a, "two") }, "two", ""},
			{"half of them changed", func() { write(t, a, "six") }, "two", "cannot be used"},
			{"nothing happened", func() {}, "two", ""},
			{"they are back", func() { write(t, a, "two") }, "two", ""},
			{"the same complaint again", func() { write(t, a, "six") }, "two", "cannot be used"},
			{"one is gone", func() { remove(a) }, "two", "cannot be used"},
			{"others can write it", func() {
				write(t, a, "two")
				if err := os.Chmod(a, 0o620); err != nil {
					t.Fatal(err)
				}
			}, "two", "cannot be used"},
			{"replaced by links", func() {
				remove(a)
				write(t, a+".1", "six")
				if err := os.Symlink(a+".1", a); err != nil {
					t.Fatal(err)
				}
				write(t, b, "six")
			}, "six", "were read again"},
		} {
			step.change()
			time.Sleep(2 * time.Second) // of the bubble
			if got := *v.Get(); got != step.want {
				t.Errorf("%s: they say %q, want %q", step.what, got, step.want)
			}
			lines := seen.TakeAll()
			if len(lines) > 1 || (len(lines) == 1) != (step.line != "") || len(lines) == 1 && !strings.Contains(lines[0].Message, step.line) {
				t.Errorf("%s: the log has %v, want %q", step.what, lines, step.line)
			}
			if text := fmt.Sprint(lines); strings.Contains(text, "two") || strings.Contains(text, "six") {
				t.Errorf("%s: the log shows what a file holds: %s", step.what, text)
			}
		}
	})
}

// TestFilesThatAreRefused: a file is regular and bounded, and a secret is not for others to write.
func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("shared"), "x")
	if err := os.Chmod(path("shared"), 0o664); err != nil {
		t.Fatal(err)
	}
	write(t, path("large"), strings.Repeat("x", 4<<20+1))
	write(t, path("largest"), strings.Repeat("x", 4<<20))
	if err := syscall.Mkfifo(path("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := "" // only root can give a file away
	write(t, path("others"), "x")
	if os.Geteuid() == 0 {
		if err := os.Chown(path("others"), 12345, 12345); err != nil {
			t.Fatal(err)
		}
		own = "others belongs to another user: remove it"
	}
	for _, tc := range []struct {
		file watchedfile.File
		want string // empty: it is taken
	}{
		{watchedfile.Own(path("others")), own},
		{watchedfile.Secret(path("others")), ""},
		{watchedfile.Public(path("none")), "no such file or directory"},
		{watchedfile.Public(dir), "is a directory, want a file"},
		{watchedfile.Public(path("pipe")), "pipe is no regular file"},
		{watchedfile.Public(path("large")), "large has more than 4194304 bytes"},
		{watchedfile.Public(path("largest")), ""},
		{watchedfile.Secret(path("shared")), "shared can be written by others than its owner: chmod go-w it"},
		{watchedfile.Public(path("shared")), ""},
		{watchedfile.Own(path("shared")), "shared can be written by others than its owner: chmod go-w it"},
		{watchedfile.Own(path("largest")), ""},
	} {
		_, err := watchedfile.Read("secret of etcd", tc.file)
		switch {
		case tc.want == "" && err != nil:
			t.Error(err)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "secret of etcd: ") || !strings.HasSuffix(err.Error(), tc.want)):
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
}

func ExampleValue() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of an example
	path := filepath.Join(dir, "password")
	if err := os.WriteFile(path, []byte("hunter2\n"), 0o600); err != nil {
		panic(err)
	}
	password, err := watchedfile.Open("password of the database", nil, func(texts [][]byte) (string, error) {
		return strings.TrimSpace(string(texts[0])), nil
	}, watchedfile.Secret(path))
	if err != nil {
		panic(err)
	}
	fmt.Println(password.Get())
	// Output: hunter2
}

// TestSecretsThatEverybodyCanRead are told of once, until that is corrected.
func TestSecretsThatEverybodyCanRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		core, logs := observer.New(zap.WarnLevel)
		parse := func(texts [][]byte) (string, error) { return string(texts[0]), nil }
		for file, want := range map[watchedfile.File]int{watchedfile.Secret(path): 2, watchedfile.Public(path): 0, watchedfile.Trusted(path): 0} {
			logs.TakeAll()
			v, err := watchedfile.Open("token", zap.New(core), parse, file)
			if err != nil {
				t.Fatal(err)
			}
			for _, mode := range []os.FileMode{0o600, 0o640, 0o644, 0o644, 0o600, 0o604} {
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				v.Get()
			}
			if logs.Len() != want {
				t.Errorf("%d lines, want %d: %v", logs.Len(), want, logs.All())
			}
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
}
