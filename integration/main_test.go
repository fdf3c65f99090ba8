// Package integration_test runs whole systems: controllers and servers as processes of
// their own, a real MongoDB and a real etcd, real clients. Processes are killed, stopped
// and ended at chosen places, which they tell themselves; nothing waits for a time to
// pass where it can wait for the thing itself.
//
// The test binary is also the processes: TestMain looks at roleVariable and becomes one; raceProcesses
// says which of them have the race detector. MongoDB is that of mongotest, etcd that of
// localetcd, both shared by all tests; each test has a deployment and databases of its own.
package integration_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"dbcontroller.dev/integration/localetcd"
	"dbcontroller.dev/integration/localmongo/mongotest"
)

// roleVariable names the environment variable that makes the test binary a process of
// the system under test.
const roleVariable = "DBCONTROLLER_INTEGRATION_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	code := mongotest.Run(m)
	if err := errors.Join(sharedEtcd.stop(), built.remove()); err != nil {
		fmt.Fprintln(os.Stderr, "clean up:", err)
		code = max(code, 1)
	}
	if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		fmt.Fprintln(os.Stderr, "a process was left behind:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// etcd is the etcd of all tests of this binary. It starts with the first test that asks for it.
type etcd struct {
	mu     sync.Mutex
	dir    string
	server *localetcd.Server
}

var sharedEtcd etcd

func (e *etcd) endpoints(t *testing.T) []string {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server == nil {
		dir, err := os.MkdirTemp("", "dbcontroller-integration-etcd-")
		if err != nil {
			t.Fatal(err)
		}
		e.dir = dir
		if e.server, err = localetcd.Open(dir, localetcd.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return []string{e.server.Endpoint}
}

func (e *etcd) stop() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer localetcd.Remove()
	var err error
	if e.server != nil {
		err = e.server.Close()
	}
	if e.dir != "" {
		err = errors.Join(err, os.RemoveAll(e.dir))
	}
	return err
}
