// Package localetcd gives tests a real etcd in a process of its own, which ends with the test.
//
// It does not link etcd's server: the go command gives those who use a package the modules that
// its tests need, and nobody needs an etcd server for a store on one. It builds the program in
// its folder etcd instead.
//
// It does not own clusters of several members, nor the etcd that dbcontroller has in it.
//
// It is not for users and may change with any version.
package localetcd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Options are etcd's own. Zero values are its defaults.
type Options struct {
	Operations int // --max-txn-ops
	Bytes      int // --max-request-bytes
}

// program is built by the first test that asks for it, and once for all tests of a binary.
var program struct {
	once sync.Once
	path string
	err  error
}

const programs = "dbcontroller.dev/integration/localetcd/etcd"

func build() (string, error) {
	dir, err := os.MkdirTemp("", "dbcontroller-etcd-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "etcd")
	if out, err := exec.Command("go", "build", "-o", path, programs).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", programs, err, out)
	}
	return path, nil
}

// Main runs tests and removes the program that they were given. A TestMain calls it.
func Main(m *testing.M) int {
	defer Remove()
	return m.Run()
}

// Remove is for a TestMain that has more to run than Main.
func Remove() {
	if program.path == "" {
		return
	}
	if err := os.RemoveAll(filepath.Dir(program.path)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// patience is how long an etcd may take to start or to end, on a machine that is busy.
const patience = time.Minute

// Start starts an etcd and returns its endpoint. It ends with the test. No etcd is a failure
// and never a skip: a run that tested nothing must not look green.
func Start(t testing.TB, o Options) string {
	t.Helper()
	s, err := Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Endpoint
}

// Server is a running etcd.
type Server struct {
	Endpoint string // URL of its clients

	cmd   *exec.Cmd
	alive io.Closer // it ends when this is closed
	said  *bytes.Buffer
}

// Open starts an etcd with its data in a folder. It is for those who need one for longer than a
// test; they call Close.
func Open(dir string, o Options) (*Server, error) {
	program.once.Do(func() { program.path, program.err = build() })
	if program.err != nil {
		return nil, program.err
	}
	args := []string{"-data-dir", dir}
	if o.Operations > 0 {
		args = append(args, "-max-txn-ops", fmt.Sprint(o.Operations))
	}
	if o.Bytes > 0 {
		args = append(args, "-max-request-bytes", fmt.Sprint(o.Bytes))
	}
	s := &Server{cmd: exec.Command(program.path, args...), said: &bytes.Buffer{}}
	s.cmd.Stderr = s.said
	var err error
	if s.alive, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	endpoint, err := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	if err != nil {
		return nil, fmt.Errorf("etcd did not start: %w", errors.Join(err, s.Close()))
	}
	s.Endpoint = strings.TrimSpace(endpoint)
	return s, nil
}

// Close ends the etcd and waits for that.
func (s *Server) Close() error {
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	_ = s.alive.Close()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("etcd: %w\n%s", err, s.said.String())
	}
	return nil
}
