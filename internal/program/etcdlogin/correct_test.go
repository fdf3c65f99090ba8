package etcdlogin_test

import (
	"errors"
	"strings"
	"testing"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/etcdlogin"
)

// TestCorrectEmbedded: about an embedded etcd nobody is told to correct endpoints that no file
// names.
func TestCorrectEmbedded(t *testing.T) {
	t.Parallel()
	e := config.Etcd{Endpoints: []string{"unix:///run/etcd"}}
	if got := etcdlogin.Correct(errors.New("no answer"), e, true); strings.Contains(got, "correct") || !strings.Contains(got, "hosts it again") {
		t.Errorf("embedded: %s", got)
	}
	if got := etcdlogin.Correct(errors.New("no answer"), e, false); got != "start etcd, or correct etcd.endpoints" {
		t.Errorf("named: %s", got)
	}
}
