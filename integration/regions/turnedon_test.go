package regions_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// ready returns the answer of a server to whether it is ready, as an error if it is not.
func (r *region) ready(server int) error {
	res, err := r.http.Get("http://" + r.operators[server] + "/readyz")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", text)
	}
	return err
}

// TestTurnedOn: a deployment that runs without regions gets them. A server that is ahead of the controllers
// waits for them, and they add the collections for copies to the namespaces that are there.
func TestTurnedOn(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // a hang fails here, and not a slow machine
	defer cancel()
	w := startWith(ctx, t, 1, "  forward: true\n", "us")
	us, eu := w.regions["us"], w.regions["eu"]
	if err := us.create("before", "first"); err != nil {
		t.Fatal(err)
	}
	if err := eu.create("theirs", "first"); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(us.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(us.config, append(config, us.others...), 0o600); err != nil {
		t.Fatal(err)
	}
	us.servers[0].stop()
	us.servers[0].role = serverRole
	us.servers[0].start()
	us.eventually("the server waits for the collections of copies", func() error {
		if err := us.ready(0); err == nil || !strings.Contains(err.Error(), "secrets_copies") && !strings.Contains(err.Error(), "copies_state") {
			return fmt.Errorf("its state is %w", err)
		}
		return nil
	})
	us.controller.stop()
	us.controller.role = controllerRole
	us.controller.start()
	us.eventually("the server is ready", func() error { return us.ready(0) })
	if err := us.create("after", "second"); err != nil {
		t.Fatal(err)
	}
	// A secret from before has no home: it belongs to the region that has it.
	w.converge("after regions are turned on", map[string]string{"before": ":first", "theirs": "eu:first", "after": "us:second"}, names...)
	us.begin("v2")
	us.servedBy("v2")
	w.converge("after an upgrade", map[string]string{"before": ":first", "theirs": "eu:first", "after": "us:second"}, names...)
}
