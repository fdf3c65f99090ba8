package copies_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"dbcontroller.dev/record"
)

// TestOwnedTwice: each process that makes copies reports the names that are owned in two regions, until
// one of them deletes its record.
func TestOwnedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		o.set("a", "theirs")
		o.set("b", "theirs")
		o.set("c", "theirs")
		for _, name := range []string{"a", "b", "d"} {
			s.Put(t, "books", map[string]string{"_id": name, "title": "mine"})
		}
		ended := make(chan error, 1)
		for _, server := range []string{"first", "next"} {
			ctx, stop := context.WithCancel(t.Context())
			f := follow(o, s)
			go func() { ended <- f.Run(ctx) }()
			time.Sleep(time.Minute)
			if r := f.Report(); r.Both != 2 {
				t.Errorf("the %s server reports %+v", server, r)
			}
			if server == "next" {
				if err := s.Store.Write(t.Context(), []record.Mutation{{Kind: "books", Key: record.StringKey("a")}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if r := f.Report(); r.Both != 1 {
					t.Errorf("after a delete here reported %+v", r)
				}
				o.set("b", "")
				time.Sleep(time.Minute)
				if r := f.Report(); r.Both != 0 {
					t.Errorf("after a delete there reported %+v", r)
				}
			}
			stop()
			<-ended
		}
	})
}
