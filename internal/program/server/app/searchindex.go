package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/engine/sink"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// searchWork is the work on an index for one set of collections.
type searchWork struct {
	id   string
	stop func() // ends the work, and waits for its end
}

// searchIndex is the index of one version.
type searchIndex struct {
	version  string
	cfg      config.Search
	log      *zap.Logger
	fields   map[string][]string
	revision string
	follow   sink.Config
	source   *searchSource

	mu       sync.Mutex
	index    sink.Index     // nil: it is not open
	follower *sink.Follower // of index
	news     chan struct{}  // closed and replaced when index changes
	fresh    bool           // it was up to date when last looked at
	end      func()         // ends the present use of index
	suspect  bool           // index could not be read
	anew     bool           // index is deleted when its use ends
}

var _ vrunner.Searcher = (*searchIndex)(nil)

// start opens the index and follows the namespace.
func (x *searchIndex) start(ctx context.Context, id, folder string, engine sink.Engine) *searchWork {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.work(ctx, folder, engine)
	}()
	return &searchWork{id: id, stop: func() { cancel(); <-done }}
}

const (
	// retryIndex is the pause after an index could not be opened, or had to be closed.
	retryIndex = time.Second
	// damagedFor is how long an index that seemed damaged is watched. If it seems so again, it begins
	// anew.
	damagedFor = time.Hour
)

func (x *searchIndex) work(ctx context.Context, folder string, engine sink.Engine) {
	said, damaged := "", time.Time{}
	for ctx.Err() == nil {
		index, err := engine(folder, x.fields, x.revision)
		if err == nil {
			err = x.use(ctx, index, sink.New(x.source, index, x.follow), &damaged)
		}
		if ctx.Err() != nil {
			return
		}
		// Another process may end, or an operator make room.
		if text := fmt.Sprint(err); text != said {
			said = text
			x.log.Warn("search index is not in use; opened again", zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryIndex):
		}
	}
}

// use follows the namespace into an open index by f, until ctx ends or the index fails, and closes
// the index. It deletes an index that seemed damaged at the time in damaged, and now again.
func (x *searchIndex) use(ctx context.Context, index sink.Index, f *sink.Follower, damaged *time.Time) error {
	using, cancel := context.WithCancel(ctx)
	defer cancel()
	x.set(index, f, cancel)
	err := f.Run(using)
	anew := x.unset()
	if errors.Is(err, sink.ErrDamaged) {
		anew = anew || !damaged.IsZero() && time.Since(*damaged) < damagedFor
		*damaged = time.Now()
	}
	end := index.Close
	if anew {
		x.log.Warn("search index begins anew", zap.Error(err))
		end, *damaged = index.Remove, time.Time{}
	}
	if closed := end(); closed != nil {
		x.log.Warn("search index is not closed", zap.Error(closed))
	}
	return err
}

func (x *searchIndex) set(index sink.Index, f *sink.Follower, end func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.index, x.follower, x.end, x.fresh, x.suspect, x.anew = index, f, end, false, false, false
	close(x.news)
	x.news = make(chan struct{})
}

// unset ends the use of the index. It reports whether the index is to be deleted.
func (x *searchIndex) unset() (anew bool) {
	x.mu.Lock()
	anew = x.anew
	x.mu.Unlock()
	x.set(nil, nil, nil)
	return anew
}

// doubt notes an error of the index in use that means that it cannot be read.
func (x *searchIndex) doubt(index sink.Index, err error) {
	if !errors.Is(err, sink.ErrUnread) {
		return
	}
	x.mu.Lock()
	first := x.index == index && !x.suspect
	x.suspect = x.suspect || first
	x.mu.Unlock()
	if first {
		x.log.Warn("search index cannot be read: rebuild it", zap.Error(err))
	}
}

// rebuild makes the index read all records again. An index that could not be read begins anew. Any
// other one stays in use.
func (x *searchIndex) rebuild() {
	x.mu.Lock()
	f, end := x.follower, x.end
	x.anew = x.suspect
	anew := x.anew
	x.mu.Unlock()
	switch {
	case f == nil: // it closed just now
	case anew:
		end()
	default:
		f.Rebuild()
	}
}

// now returns the open index, or nil.
func (x *searchIndex) now() (sink.Index, *sink.Follower, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.index, x.follower, x.news
}

// upToDate reports whether the index is within its limit. An index that was stays so up to twice the
// limit, so that the announcement of the server does not change all the time.
func (x *searchIndex) upToDate() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.follower == nil {
		return false
	}
	most := x.cfg.Lag
	if x.fresh {
		most *= 2
	}
	lag, known := x.follower.Status().Lag(time.Now())
	x.fresh = known && lag <= most
	return x.fresh
}

// Searched reports whether the index has a field of a kind.
func (x *searchIndex) Searched(kind, field string) bool {
	fields, ok := x.fields[kind]
	return ok && (field == "" || field == record.NameField || slices.Contains(fields, field))
}

// Search waits until the index is up to date, and searches it.
func (x *searchIndex) Search(ctx context.Context, req record.SearchRequest, since time.Time) (record.SearchPage, error) {
	for {
		index, f, news := x.now()
		if f == nil {
			select {
			case <-news:
				continue
			case <-ctx.Done():
				return record.SearchPage{}, context.Cause(ctx)
			}
		}
		moment := time.Now().Add(-x.cfg.Lag)
		if moment.Before(since) {
			moment = since
		}
		if err := x.wait(ctx, f, moment, news); err != nil {
			return record.SearchPage{}, err
		}
		page, err := index.Search(ctx, req)
		if now, _, _ := x.now(); now != index {
			continue // it was closed meanwhile, and another one follows
		}
		if errors.Is(err, sink.ErrReopen) {
			select {
			case <-news: // it is closed
				continue
			case <-ctx.Done():
				return record.SearchPage{}, context.Cause(ctx)
			}
		}
		x.doubt(index, err)
		return page, err
	}
}

// wait waits until f has reached a moment, or has ended.
func (x *searchIndex) wait(ctx context.Context, f *sink.Follower, moment time.Time, news <-chan struct{}) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-news:
			cancel()
		case <-waiting.Done():
		}
	}()
	if err := f.Wait(waiting, moment); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
