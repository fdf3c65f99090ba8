package integration_test

import (
	"context"
	"testing"

	"connectrpc.com/connect"

	bbsv1 "dbcontroller.dev/gen/bbs/v1"
)

// late is a write that is under way while its server is stopped.
type late struct {
	name   string
	guid   string
	call   func(ctx context.Context, c *bbsClient) error
	before string // states of the process, as the ledger knows them
	after  string

	done  chan error
	state string // in the end
}

// lateWrites are a create, an update and a delete, on processes that are there already
// but for the first.
func lateWrites(ctx context.Context, t *testing.T, c *bbsClient) []*late {
	t.Helper()
	made := func(guid string) process {
		p := process{guid: guid, made: 1, changed: 1}
		_, err := c.v1[0].CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: p.v1()}))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	created := process{guid: "late-create", made: 1, changed: 1}
	updated := made("late-update")
	removed := made("late-delete")
	was := updated.state()
	updated.changed = 2
	return []*late{
		{name: "create", guid: created.guid, after: created.state(), call: func(ctx context.Context, c *bbsClient) error {
			_, err := c.v1[0].CreateDesiredLRP(ctx, connect.NewRequest(&bbsv1.CreateDesiredLRPRequest{DesiredLrp: created.v1()}))
			return err
		}},
		{name: "update", guid: updated.guid, before: was, after: updated.state(), call: func(ctx context.Context, c *bbsClient) error {
			_, err := c.v1[0].UpdateDesiredLRP(ctx, connect.NewRequest(updateOf(updated)))
			return err
		}},
		{name: "delete", guid: removed.guid, before: removed.state(), call: func(ctx context.Context, c *bbsClient) error {
			_, err := c.v1[0].DeleteDesiredLRP(ctx, connect.NewRequest(&bbsv1.DeleteDesiredLRPRequest{ProcessGuid: removed.guid}))
			return err
		}},
	}
}

func (w *late) send(ctx context.Context, c *bbsClient) {
	w.done = make(chan error, 1)
	go func() { w.done <- w.call(ctx, c) }()
}

// await waits for what the client is told, which decides what must be there.
func (w *late) await(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case err := <-w.done:
		if w.state = w.after; err != nil {
			w.state = w.before
		}
		t.Logf("the client of the %s is told: %v", w.name, err)
	case <-ctx.Done():
		t.Fatalf("%s: %v", w.name, ctx.Err())
	}
}

// check looks the process up. An update that was made twice has counted twice.
func (w *late) check(ctx context.Context, t *testing.T, c *bbsClient) {
	t.Helper()
	res, err := c.v1[0].GetDesiredLRP(ctx, connect.NewRequest(&bbsv1.GetDesiredLRPRequest{ProcessGuid: w.guid}))
	if connect.CodeOf(err) == connect.CodeNotFound && w.state == "" {
		return
	}
	if err != nil {
		t.Errorf("%s: %v", w.name, err)
		return
	}
	if has := stateV1(res.Msg.GetDesiredLrp()); has != w.state {
		t.Errorf("%s: it holds %q, want %q", w.name, has, w.state)
	}
	changes := uint32(0)
	if w.state == w.after && w.name == "update" {
		changes = 1
	}
	if index := res.Msg.GetDesiredLrp().GetModificationTag().GetIndex(); index != changes {
		t.Errorf("%s: changed %d times, want %d", w.name, index, changes)
	}
}
