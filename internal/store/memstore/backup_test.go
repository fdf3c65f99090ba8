package memstore

import (
	"errors"
	"testing"

	"dbcontroller.dev/record"
)

// TestRestore: a cluster that was restored is as it was at its backup, however it was changed since.
// Its clock and its log go back and come again. Streams of before end, and none begins at a place
// that it has not come to again.
func TestRestore(t *testing.T) {
	ctx, nothing := t.Context(), func() {}
	c := NewCluster(Options{})
	s := c.Open("test")
	tok, fixed := provision(t, s, "things", false), provision(t, s, "docs", true)
	write(t, s, tok, 1)
	owner := record.Owner{Deployment: "d", Version: "v1"}
	if err := errors.Join(s.Claim(ctx, tok, owner), s.PutMark(ctx, record.Mark{Owner: owner})); err != nil {
		t.Fatal(err)
	}
	at, err := s.Position(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b := c.Backup(nothing)
	for round := range 2 { // a backup may be restored again
		fence := record.Fence{Class: record.FenceUUID, Token: tok, To: record.PhysicalName("things", 1)}
		view := record.Fence{Class: record.FenceView, Token: fixed, To: record.PhysicalName("docs", 1)}
		write(t, s, tok, 2)
		if err := errors.Join(s.Fence(ctx, fence), s.Fence(ctx, view), s.PutMark(ctx, record.Mark{Owner: owner, Rev: 1}), s.Release(ctx, owner)); err != nil {
			t.Fatal(err)
		}
		gone := provision(t, s, "others", false)
		late, err := s.Position(ctx)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := s.Watch(ctx, at, []record.KindSpec{{Name: "things"}})
		if err != nil {
			t.Fatal(err)
		}
		c.Restore(b, nothing)
		if _, err := stream.Next(ctx); !errors.Is(err, record.ErrUnavailable) {
			t.Errorf("round %d: the stream goes on: %v", round, err)
		}
		if _, err := s.Watch(ctx, late, nil); err == nil {
			t.Errorf("round %d: a stream begins where the log has not come to", round)
		}
		if now, err := s.Position(ctx); err != nil || now.Compare(at) != 0 || string(now.Token) != string(at.Token) {
			t.Errorf("round %d: it is at %v, %v", round, now, err)
		}
		rec, err := s.Get(ctx, tok, record.StringKey("a"))
		if err != nil || rec.Doc.Lookup("n").Int32() != 1 {
			t.Errorf("round %d: it holds %v, %v", round, rec, err)
		}
		marks, err := s.Marks(ctx)
		if err != nil || len(marks) != 1 || marks[0].Rev != 1 {
			t.Errorf("round %d: its marks are %v, %v", round, marks, err)
		}
		if claims, err := s.Claims(ctx); err != nil || len(claims) != 1 {
			t.Errorf("round %d: its claims are %v, %v", round, claims, err)
		}
		if _, err := s.Get(ctx, gone, record.StringKey("a")); !errors.Is(err, record.ErrFenced) {
			t.Errorf("round %d: what was made since is there: %v", round, err)
		}
		if err := s.Foreign().Insert(ctx, "docs", document("a", 1)); err != nil {
			t.Errorf("round %d: the fence of an application is there: %v", round, err)
		}
		if anew := provision(t, s, "others", false); anew.ID == gone.ID {
			t.Errorf("round %d: an identity comes again", round)
		}
	}
}
