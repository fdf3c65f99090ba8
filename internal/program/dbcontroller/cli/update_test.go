package cli

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	dbv1 "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/clitest"
)

func (f *fake) ListUpdates(_ context.Context, r *connect.Request[dbv1.ListUpdatesRequest]) (*connect.Response[dbv1.ListUpdatesResponse], error) {
	f.got = r.Msg
	return answer(&dbv1.ListUpdatesResponse{Tasks: f.tasks}, f.err)
}

func (f *fake) BeginUpdate(_ context.Context, r *connect.Request[dbv1.BeginUpdateRequest]) (*connect.Response[dbv1.Deployment], error) {
	f.ask(r.Msg)
	return answer(f.deployment, f.err)
}

func (f *fake) CancelUpdate(_ context.Context, r *connect.Request[dbv1.CancelUpdateRequest]) (*connect.Response[dbv1.Deployment], error) {
	f.ask(r.Msg)
	return answer(f.deployment, f.err)
}

func TestUpdateCommands(t *testing.T) {
	t.Parallel()
	f := &fake{deployment: clitest.Sample(), tasks: []*dbv1.ListUpdatesResponse_Task{
		{Name: "fill-region", Version: "v1", Kind: "packages", Description: "region of each package"},
		{Name: "other", Version: "v2", Kind: "packages"},
	}}
	f.deployment.Effects = []string{"run it"}
	server := "--server=" + serve(t, f)
	out, _, err := run(t, "update", "list", server)
	if want := "NAME         VERSION  KIND      DESCRIPTION\nfill-region  v1       packages  region of each package\nother        v2       packages  -\n"; err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, err = run(t, "update", "list", "--json", server); err != nil || !strings.HasPrefix(out, `{"tasks":[{"name":"fill-region"`) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err = run(t, "update", "begin", server); err == nil || !strings.Contains(err.Error(), "use --task") {
		t.Error(err)
	}
	_, diag, err := run(t, "update", "begin", "--task=fill-region", "--by=ann", server)
	begun, _ := f.got.(*dbv1.BeginUpdateRequest)
	if err != nil || diag != "will: run it\n" || begun.GetDryRun() || begun.GetTask() != "fill-region" || begun.GetRequestedBy() != "ann" || len(f.dry) != 1 {
		t.Errorf("%v, %q, %v after %d dry runs", err, diag, f.got, len(f.dry))
	}
	// The run that the dry run has seen is meant, and no other that begins meanwhile.
	_, _, err = run(t, "update", "cancel", "--reason=lunch", "--by=ann", server)
	cancelled, _ := f.got.(*dbv1.CancelUpdateRequest)
	if err != nil || cancelled.GetDryRun() || cancelled.GetUpdateId() != f.deployment.GetUpdate().GetId() || cancelled.GetReason() != "lunch" {
		t.Errorf("%v, %v", err, f.got)
	}
	if _, _, err = run(t, "update", "cancel", "--dry-run", server); err != nil || !f.got.(*dbv1.CancelUpdateRequest).GetDryRun() {
		t.Errorf("%v, %v", err, f.got)
	}
	if _, _, err = run(t, "update"); err == nil || err.Error() != "update: no object given: use 'dbcontroller update list'" {
		t.Error(err)
	}
}
