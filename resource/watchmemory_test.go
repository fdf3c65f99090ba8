package resource

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/internal/memory"
	"dbcontroller.dev/vrunner"
)

// TestWatchIsBounded: what a watch whose client does not read keeps counts, a second one that finds
// no room is refused, and one that has no room to remember goes on without.
func TestWatchIsBounded(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	const books = 100
	var page int64
	for i := range books {
		b := s.add(t, fmt.Sprintf("b%03d", i), 1)
		page += int64(len(s.doc(t, "books", b.GetName())))
	}
	room := page + page/3 // for one page, and not for all names
	budget := memory.NewBudget(room)
	watch := func(out func(Event[*libraryv1.Book]) error) (stop func(), done <-chan error) {
		share := budget.Share(room)
		ctx, cancel := context.WithCancel(memory.With(context.Background(), share))
		ended := make(chan error, 1)
		go func() {
			err := s.books.Watch(ctx, &libraryv1.WatchRequest{}, out)
			share.End()
			ended <- err
		}()
		return cancel, ended
	}
	events, read := make(chan string), make(chan struct{})
	stop, done := watch(func(e Event[*libraryv1.Book]) error {
		events <- fmt.Sprint(e.Type, " ", e.Name)
		<-read
		return nil
	})
	next := func() string {
		select {
		case e := <-events:
			return e
		case err := <-done:
			t.Fatalf("the watch ended with %v", err)
			return ""
		}
	}
	for i := range books {
		if got, want := next(), fmt.Sprintf("%d books/b%03d", vrunner.EventPut, i); got != want {
			t.Fatalf("sent %q, want %q", got, want)
		}
		if held := room - budget.Left(); held < page || held > room {
			t.Fatalf("before event %d is read %d bytes are held of %d, and the page has %d", i, held, room, page)
		}
		if i == 0 {
			_, second := watch(func(Event[*libraryv1.Book]) error { return nil })
			want(t, <-second, connect.CodeUnavailable, "too many large requests")
		}
		read <- struct{}{}
	}
	if got, want := next(), fmt.Sprintf("%d ", vrunner.EventLevel); got != want {
		t.Fatalf("sent %q, want %q", got, want)
	}
	if held := room - budget.Left(); held >= page {
		t.Errorf("after the initial state %d bytes are held", held)
	}
	read <- struct{}{}
	if err := s.books.Delete(t.Context(), &libraryv1.DeleteRequest{Name: "books/b000"}); err != nil {
		t.Fatal(err)
	}
	if got, want := next(), fmt.Sprintf("%d books/b000", vrunner.EventDelete); got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	stop()
	read <- struct{}{}
	if err := <-done; err == nil || budget.Left() != room {
		t.Errorf("it ended with %v, and %d of %d bytes are free", err, budget.Left(), room)
	}
}
