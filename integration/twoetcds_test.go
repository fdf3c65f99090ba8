package integration_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"dbcontroller.dev/integration/subprocess"
)

// TestTwoEmbeddedEtcds: two programs with an etcd of their own would each run switches of one
// deployment. The second one ends, and says why, and so does one in the folder of the first. The
// first one goes on.
func TestTwoEmbeddedEtcds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := newSystem(ctx, t, settings{decide: true})
	insert(ctx, s, "v1", packageDoc("v1", "a", 0))
	var text string
	s.edit(func(has string) string {
		text = regexp.MustCompile(`(?m)^etcd: .*\n`).ReplaceAllString(has, "")
		return has
	})
	args := func(name string) []string {
		s.write(name+".yaml", "dataDir: "+filepath.Join(s.dir, name)+"\n"+text)
		return []string{"run", "--embedded-etcd", "--config", filepath.Join(s.dir, name+".yaml"), "--api-listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"}
	}
	first := spawn(t, "one", program(built.path(t), args("one"), s.env))
	eventually(ctx, t, "the first controller runs", func() error {
		if !strings.Contains(first.output(), `"msg":"controller runs"`) {
			return errors.New(tail(first.output(), 3))
		}
		return nil
	})
	for name, want := range map[string]string{
		"two": "used it (last seen in epoch 1 with v1 as the current version), but etcd has no such deployment: etcd was lost or restored, or the configuration names another etcd",
		"one": "in use by another process",
	} {
		began := time.Now()
		cmd := program(built.path(t), args(name), s.env)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		second, err := subprocess.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		stop := context.AfterFunc(ctx, second.Kill)
		code, _ := second.Wait()
		stop()
		if code <= 0 || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "initialVersion") {
			t.Errorf("%s: exit code %d, want %q in\n%s", name, code, want, tail(errs.String(), 5))
		}
		t.Logf("%s ended after %v", name, time.Since(began))
	}
	if !first.Running() {
		t.Fatalf("the first controller has ended:\n%s", tail(first.output(), 5))
	}
	first.terminate(patience)
}
