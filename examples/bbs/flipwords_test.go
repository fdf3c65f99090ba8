package bbs

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dbcontroller.dev/apiversion/protodoc"
	"dbcontroller.dev/examples/bbs/converge"
	bbsv1 "dbcontroller.dev/gen/bbs/v1"
	bbsv2 "dbcontroller.dev/gen/bbs/v2"
	"dbcontroller.dev/record"
)

// TestWordsOverTheFlip: what v1 clients say of instances while writes are held for a switch is
// answered as ever once it is over, and has come to v2.
func TestWordsOverTheFlip(t *testing.T) { onBackends(t, wordsOverTheFlip) }

func wordsOverTheFlip(t *testing.T, w *world) {
	ctx := t.Context()
	p := createV1(t, w.api, lrpV1("p", "cf"))
	now := millisOf(time.Now())
	unclaimed, running := converge.IndexName("p", 0), converge.IndexName("p", 1)
	for i, in := range []*bbsv1.ActualLRP{
		{Placement: "a", State: string(converge.Unclaimed), Epoch: p.GetModificationTag().GetEpoch(), WantedMs: now, SinceMs: now},
		{Placement: "b", State: string(converge.Running), InstanceGuid: "guid", CellId: "cell", Epoch: p.GetModificationTag().GetEpoch(), WantedMs: now, SinceMs: now},
	} {
		name := converge.IndexName("p", i)
		doc, err := protodoc.MarshalID(name, &bbsv1.ActualLRPGroup{Name: name, Revision: 1, ProcessGuid: "p", Index: int32(i), Instance: in})
		w.check(err)
		w.check(w.db[V1].Write(ctx, w.tokens(V1), []record.Mutation{{Kind: KindActualLRPs, Key: record.StringKey(name), Doc: doc}}))
	}
	w.bring()

	type answer struct {
		group *bbsv1.ActualLRPGroup
		err   error
	}
	say := func(call func(context.Context) (*connect.Response[bbsv1.ActualLRPGroup], error)) <-chan answer {
		done := make(chan answer, 1)
		go func() {
			res, err := call(context.WithoutCancel(ctx))
			if err != nil {
				done <- answer{nil, err}
				return
			}
			done <- answer{res.Msg, nil}
		}()
		return done
	}
	var failed, retired, late <-chan answer
	w.held = func() {
		calls := make(chan string)
		w.calls.Store(&calls)
		failed = say(func(ctx context.Context) (*connect.Response[bbsv1.ActualLRPGroup], error) {
			return w.api.actualV1.FailActualLRP(ctx, connect.NewRequest(&bbsv1.FailActualLRPRequest{Name: unclaimed, PlacementError: "no room"}))
		})
		retired = say(func(ctx context.Context) (*connect.Response[bbsv1.ActualLRPGroup], error) {
			return w.api.actualV1.RetireActualLRP(ctx, connect.NewRequest(&bbsv1.RetireActualLRPRequest{Name: running}))
		})
		late = say(func(ctx context.Context) (*connect.Response[bbsv1.ActualLRPGroup], error) {
			return w.api.actualV1.FailActualLRP(ctx, connect.NewRequest(&bbsv1.FailActualLRPRequest{Name: running, PlacementError: "no room"}))
		})
		for range 3 {
			<-calls
		}
		w.calls.Store(nil)
	}
	w.flip()
	if failed == nil {
		t.Fatal("no writes were held")
	}
	if a := <-failed; a.err != nil || a.group.GetInstance().GetPlacementError() != "no room" || a.group.GetRevision() <= 1 {
		t.Errorf("fail: %v", a)
	}
	if a := <-retired; a.err != nil || !a.group.GetInstance().GetRetire() || a.group.GetInstance().GetInstanceGuid() != "guid" {
		t.Errorf("retire: %v", a)
	}
	if a := <-late; connect.CodeOf(a.err) != connect.CodeFailedPrecondition {
		t.Errorf("fail of one that runs: %v", a)
	}
	get := func(name string) *bbsv2.ActualLRP {
		t.Helper()
		res, err := w.api.actualV2.GetActualLRP(ctx, connect.NewRequest(&bbsv2.GetActualLRPRequest{Name: name}))
		w.check(err)
		return res.Msg.GetActualLrp()
	}
	if l := get(unclaimed); l.GetInstance().GetPlacementError() != "no room" || l.GetDefinitionId() != "p" {
		t.Errorf("v2 has %v", l)
	}
	if l := get(running); !l.GetInstance().GetRetire() || l.GetInstance().GetCellId() != "cell" || l.GetDefinitionId() != "p" {
		t.Errorf("v2 has %v", l)
	}
}
