package appclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "dbcontroller.dev/gen/dbcontroller/v1"
	"dbcontroller.dev/internal/base/watchedfile"
)

// memory is a file with the last open location and the identities of its collections. The location
// alone is not enough: the version may be retired by now, and other collections may use its names.
// A collection with the same name and identity is still the application's, or its fence refuses the
// application's writes.
type memory struct {
	file       string // empty: none
	deployment string // required deployment; empty: any
}

// memoryFormat is the version of the file.
const memoryFormat = 1

type remembered struct {
	Format     int               `json:"format"`
	Deployment string            `json:"deployment"`
	Location   json.RawMessage   `json:"location"`
	Identities map[string]string `json:"identities"` // UUIDs of the collections, by kind
}

// errMemoryMoved means that the memory is outdated.
var errMemoryMoved = errors.New("the data is not where it was: a controller has to be reached")

// keepMemory stores each newest open location until ctx ends. It runs beside follow: a slow database
// or MongoAt must not delay the acknowledgement of a hold. It stores one location at a time, and skips
// those that newer ones have replaced.
func (a *App) keepMemory(ctx context.Context) {
	defer close(a.memoryEnded)
	if a.memory.file == "" {
		close(a.memoryTried)
		return
	}
	var written moment // in the file; zero: a recalled location, or none
	for first := true; ; first = false {
		a.mu.Lock()
		loc, changed := a.newest, a.changed
		a.mu.Unlock()
		if loc.GetState() == pb.Location_OPEN && momentOf(loc) != written && a.remember(ctx, loc) {
			written = momentOf(loc)
		}
		if first {
			close(a.memoryTried)
		}
		retry := time.NewTimer(longestPoll)
		select {
		case <-ctx.Done():
			retry.Stop()
			return
		case <-changed:
		case <-retry.C:
		}
		retry.Stop()
	}
}

// awaitMemory waits for a stage of keepMemory, but never longer than remember may take. MongoAt or a
// file system may stand still.
func awaitMemory(ctx context.Context, stage <-chan struct{}) {
	bound := time.NewTimer(callTimeout)
	defer bound.Stop()
	select {
	case <-stage:
	case <-ctx.Done():
	case <-bound.C:
	}
}

// remember stores a location and reports success. It only logs a failure, because the file is for a
// later start that may never need it.
func (a *App) remember(ctx context.Context, loc *pb.Location) bool {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := a.guarded("the memory", func() error {
		ids, err := a.recognizedIdentities(bounded, loc)
		if err != nil {
			return err
		}
		return a.memory.write(a.deployment(), loc, ids)
	})
	if err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("cannot remember where the data is", slog.String("file", a.memory.file), slog.Any("error", err))
	}
	return err == nil
}

// recognizedIdentities is identities for a location whose data the client is known to reach.
func (a *App) recognizedIdentities(ctx context.Context, loc *pb.Location) (map[string]string, error) {
	place, err := a.place(ctx, loc)
	if err == nil {
		err = a.recognize(ctx, place.Client, loc)
	}
	if err != nil {
		return nil, err
	}
	return a.identities(ctx, loc)
}

// identities returns the UUIDs of a location's collections, by kind. It omits views and missing
// collections.
func (a *App) identities(ctx context.Context, loc *pb.Location) (map[string]string, error) {
	place, err := a.place(ctx, loc)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, k := range loc.GetKinds() {
		id, err := identityOf(ctx, place.Client, k)
		if err != nil {
			return nil, err
		}
		// A view has no UUID of its own, so it cannot be recognized later.
		if id != "" {
			ids[k.GetKind()] = id
		}
	}
	return ids, nil
}

// recall returns the location in the file if its collections still have their identities.
func (m memory) recall(ctx context.Context, a *App) (*pb.Location, error) {
	if m.file == "" {
		return nil, errors.New("nothing is remembered, for no file is configured")
	}
	loc, was, err := m.read()
	if err != nil {
		return nil, err
	}
	now, err := a.identities(ctx, loc)
	if err != nil {
		return nil, err
	}
	// One missing identity is enough for doubt: that collection may be another one by now.
	if len(was) != len(loc.GetKinds()) || !maps.Equal(was, now) {
		return nil, fmt.Errorf("%s: %w", m.file, errMemoryMoved)
	}
	// Any location from a controller must replace this one.
	loc.Epoch, loc.Revision = 0, 0
	return loc, nil
}

func (m memory) read() (*pb.Location, map[string]string, error) {
	text, err := m.text()
	if err != nil {
		return nil, nil, fmt.Errorf("remember where the data is: %w", err)
	}
	var r remembered
	loc := &pb.Location{}
	if err = json.Unmarshal(text, &r); err == nil {
		// A newer library may have written fields that this one does not know.
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(r.Location, loc)
	}
	switch {
	case err != nil || loc.GetState() != pb.Location_OPEN:
		return nil, nil, fmt.Errorf("%s is no memory of an application: remove it", m.file)
	case r.Format != memoryFormat:
		return nil, nil, fmt.Errorf("%s has format %d, want %d: remove it", m.file, r.Format, memoryFormat)
	case m.deployment != "" && r.Deployment != m.deployment:
		return nil, nil, fmt.Errorf("%s is of deployment %q, not of %q: give another file", m.file, r.Deployment, m.deployment)
	}
	return loc, r.Identities, nil
}

// text returns the content of the file. A file of another user could lead the application's writes
// to another place.
func (m memory) text() ([]byte, error) {
	texts, err := watchedfile.Read("memory", watchedfile.Own(m.file))
	if err != nil {
		return nil, err
	}
	return texts[0], nil
}

// deploymentOf returns the deployment of the file; empty if the file is missing or unreadable.
func (m memory) deploymentOf() string {
	text, err := m.text()
	var r remembered
	if err != nil || json.Unmarshal(text, &r) != nil {
		return ""
	}
	return r.Deployment
}

// write replaces the file atomically: a reader sees the old or the new content.
func (m memory) write(deployment string, loc *pb.Location, ids map[string]string) error {
	where, err := protojson.Marshal(loc)
	if err != nil {
		return err
	}
	text, err := json.Marshal(remembered{memoryFormat, deployment, where, ids})
	if err != nil {
		return err
	}
	// In the same directory, because a rename works only within one file system.
	temporary, err := os.CreateTemp(filepath.Dir(m.file), filepath.Base(m.file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) //nolint:errcheck // it is gone when all went well
	_, err = temporary.Write(text)
	// Without the sync a crash could leave an empty file under the final name.
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), m.file)
}
