// Package localetcd gives tests a real etcd in its own process, which ends with the test.
//
// The package does not link etcd's server. The go command adds the requirements of a package's
// tests to the modules of its users, and users of a store on etcd need no etcd server. Instead, the
// package builds the program in its folder etcd.
//
// It does not run clusters of several members, nor the etcd embedded in dbcontroller. Begin to read
// at Start.
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

// Options are options of etcd itself. Zero values mean its defaults.
type Options struct {
	Operations int // --max-txn-ops
	Bytes      int // --max-request-bytes
}

// ProgramVariable names the environment variable with the path of a built etcd. A run of several test
// binaries sets it, so that not each of them links an etcd, which takes seconds.
const ProgramVariable = "DBCONTROLLER_TEST_ETCD"

// program is built on first use, once for all tests of a binary.
var program struct {
	once sync.Once
	path string
	dir  string // of the program; empty if it is not this binary's
	err  error
}

const programs = "dbcontroller.dev/integration/localetcd/etcd"

func build() (path, dir string, err error) {
	if path := os.Getenv(ProgramVariable); path != "" {
		return path, "", nil
	}
	if dir, err = os.MkdirTemp("", "dbcontroller-etcd-"); err != nil {
		return "", "", err
	}
	path = filepath.Join(dir, "etcd")
	if out, err := exec.Command("go", "build", "-o", path, programs).CombinedOutput(); err != nil { // #nosec G204 -- constants, and a folder of this package
		_ = os.RemoveAll(dir) // Remove does not know of it
		return "", "", fmt.Errorf("build %s: %w\n%s", programs, err, out)
	}
	return path, dir, nil
}

// Main runs the tests and removes the built program. A TestMain calls it.
func Main(m *testing.M) int {
	defer Remove()
	return m.Run()
}

// Remove removes the built program. A TestMain with more to run than Main calls it.
func Remove() {
	// No test has needed an etcd, or it is the one of ProgramVariable.
	if program.dir == "" {
		return
	}
	if err := os.RemoveAll(program.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// patience bounds the start and the end of an etcd on a busy machine.
const patience = time.Minute

// Start starts an etcd that ends with the test, and returns its endpoint. If etcd does not start,
// the test fails and never skips: a run that tested nothing must not look green.
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
	Endpoint string // client URL

	cmd   *exec.Cmd
	alive io.Closer // etcd ends when this closes
	said  *bytes.Buffer
}

// Open starts an etcd with its data in dir. It is for callers that need etcd for longer than a
// test. The caller must Close it.
func Open(dir string, o Options) (*Server, error) {
	program.once.Do(func() { program.path, program.dir, program.err = build() })
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
	// No context: etcd lives until Close, or until this process ends.
	s := &Server{cmd: exec.Command(program.path, args...), said: &bytes.Buffer{}} // #nosec G204 -- a program that this package has built
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
	// Without a limit, an etcd that never prints its endpoint would block the test for ever.
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	endpoint, err := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	if err != nil {
		return nil, fmt.Errorf("etcd did not start: %w", errors.Join(err, s.Close()))
	}
	s.Endpoint = strings.TrimSpace(endpoint)
	return s, nil
}

// Close ends the etcd and waits for its exit.
func (s *Server) Close() error {
	late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	// etcd ends when its standard input closes, so that it also ends with a killed test.
	_ = s.alive.Close()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("etcd: %w\n%s", err, s.said.String())
	}
	return nil
}
