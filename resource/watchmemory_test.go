package resource

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	libraryv1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/internal/base/memory"
	"dbcontroller.dev/vrunner"
)

// TestWatchIsBounded: what a watch whose client does not read keeps counts, a second one that finds
// no room is refused, and one that has no room to remember goes on without.
func TestWatchIsBounded(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	const books = 100
	for i := range books {
		s.add(t, fmt.Sprintf("b%03d", i), 1)
	}
	const page = leastBytes
	const room int64 = page + page/2 // for the least page, and not for names
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
		if held := room - budget.Left(); held <= 0 || held > room || i == 0 && held < page {
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
	// The end of its copies is another change of the same book, and no news.
	s.add(t, "c000", 1)
	read <- struct{}{}
	if got, want := next(), fmt.Sprintf("%d books/c000", vrunner.EventPut); got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	stop()
	read <- struct{}{}
	if err := <-done; err == nil || budget.Left() != room {
		t.Errorf("it ended with %v, and %d of %d bytes are free", err, budget.Left(), room)
	}
}

// TestWatchWaitsForRoom: a watch whose initial state has begun, or that follows changes, waits until
// others give back the memory, and then misses nothing.
func TestWatchWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t)
		const books, room = 60, leastBytes + leastBytes/2 // for the least page, and a few events
		for i := range books {
			s.add(t, fmt.Sprintf("b%03d", i), 1)
		}
		long := &libraryv1.Book{Name: "books/b001", Title: strings.Repeat("long", 100), Copies: &libraryv1.Copies{Total: 1}}
		update := func() {
			t.Helper()
			long.Title += "er"
			if _, err := s.books.Update(t.Context(), &libraryv1.UpdateBookRequest{Book: long, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}}}); err != nil {
				t.Fatal(err)
			}
		}
		update()
		budget := memory.NewBudget(room)
		var others *memory.Share
		starve := func() {
			others = budget.Share(room)
			others.Take(budget.Left())
		}
		events := make(chan string, 10*books)
		ctx, cancel := context.WithCancel(memory.With(t.Context(), budget.Share(room)))
		done := make(chan error, 1)
		go func() {
			done <- s.books.Watch(ctx, &libraryv1.WatchRequest{}, func(e Event[*libraryv1.Book]) error {
				if events <- fmt.Sprint(e.Type, " ", e.Name); e.Type == vrunner.EventPut && e.Name == "books/b000" {
					starve()
				}
				return nil
			})
		}()
		expect := func(want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, w := range want {
				select {
				case got := <-events:
					if got != w {
						t.Errorf("sent %q, want %q", got, w)
					}
				case err := <-done:
					t.Fatalf("the watch ended with %v", err)
				default:
					t.Fatalf("nothing is sent, want %q", w)
				}
			}
			if len(events) > 0 || len(done) > 0 {
				t.Fatalf("%d more events are sent, and it has ended %d times", len(events), len(done))
			}
		}
		put := func(i int) string { return fmt.Sprintf("%d books/b%03d", vrunner.EventPut, i) }
		expect(put(0))
		others.End()
		var rest []string
		for i := range books - 1 {
			rest = append(rest, put(i+1))
		}
		expect(append(rest, fmt.Sprintf("%d ", vrunner.EventLevel))...)
		starve()
		update()
		expect()
		others.End()
		expect(put(1))
		cancel()
		<-done
	})
}
