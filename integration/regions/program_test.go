package regions_test

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"dbcontroller.dev"
	"dbcontroller.dev/integration/regions"
	"dbcontroller.dev/integration/subprocess"
)

// roleVariable names the environment variable that makes the test binary a program of the service.
const roleVariable = "DBCONTROLLER_REGIONS_ROLE"

// Roles. Programs of the plain ones know nothing of regions.
const (
	controllerRole  = "controller"
	serverRole      = "server"
	plainController = "plain " + controllerRole
	plainServer     = "plain " + serverRole
)

// play runs the program of a role. It reports false for the tests themselves.
func play() bool {
	switch os.Getenv(roleVariable) {
	case controllerRole:
		dbcontroller.Controller(regions.Service())
	case serverRole:
		dbcontroller.Serve(regions.Service())
	case plainController:
		dbcontroller.Controller(plain())
	case plainServer:
		dbcontroller.Serve(plain())
	default:
		return false
	}
	return true
}

// plain is the service of a build without regions.
func plain() dbcontroller.Service {
	s := regions.Service()
	for i := range s.Versions {
		s.Versions[i].Regions = nil
	}
	return s
}

// patience is far more than a process needs to end.
const patience = 2 * time.Minute

// program is a process of a region that can end and start again.
type program struct {
	*subprocess.Process
	t    *testing.T
	name string
	role string
	args []string
	log  string // file of all its lives
}

// run starts a program that runs until the end of the test.
func run(t *testing.T, name, role, log string, args ...string) *program {
	t.Helper()
	p := &program{t: t, name: name, role: role, args: args, log: log}
	p.start()
	t.Cleanup(func() {
		select {
		case <-p.Done():
			t.Errorf("%s ended by itself", name)
		default:
			p.stop()
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Error(err)
		}
		for _, never := range []string{"DATA RACE", "panic:", "fatal error:"} {
			if bytes.Contains(text, []byte(never)) {
				t.Errorf("%s: %s in its log", name, never)
			}
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, subprocess.Tail(log, 40))
		}
	})
	return p
}

func (p *program) start() {
	p.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(exe, p.args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+p.role)
	cmd.Stdout, cmd.Stderr = log, log
	if p.Process, err = subprocess.Start(cmd); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
}

// stop ends the process in order.
func (p *program) stop() {
	p.t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		p.t.Errorf("%s: %v", p.name, err)
	}
	late := time.AfterFunc(patience, p.Kill)
	defer late.Stop()
	if code, err := p.Wait(); code != 0 {
		p.t.Errorf("%s ended with %v", p.name, err)
	}
}
