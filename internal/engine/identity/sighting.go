package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// A sharded cluster recreates collections by itself (movePrimary, reshardCollection and the like).
// A collection that somebody dropped and restored from an older state looks the same afterwards.
// Only the history tells them apart. So controllers store from time to time a position at which
// every collection existed: a sighting. From there the changes show how a collection became
// another one. If only the cluster moved it, then it has every write that the old one acknowledged,
// and controllers accept it without a person.

// Sighting is a position at which all collections of a version existed.
type Sighting struct {
	Position record.Position `json:"position"`
	// Kinds is the digest of the collections. With another one the position proves nothing.
	Kinds string `json:"kinds"`
}

// Sightings stores the latest Sighting of each version, in the coordination store.
type Sightings interface {
	// LoadSighting returns the zero Sighting if there is none.
	LoadSighting(ctx context.Context, version string) (Sighting, error)
	SaveSighting(ctx context.Context, version string, s Sighting) error
}

// Mover is a database whose server may recreate collections by itself.
type Mover interface {
	// Moves reports whether the server does that.
	Moves(ctx context.Context) (bool, error)
	// Moved follows collections from a position, at which each existed, to the present. now has the token of each one that the server kept or moved. broken has the
	// reason for every other kind.
	Moved(ctx context.Context, from record.Position, toks record.Tokens) (now record.Tokens, broken map[string]string, err error)
}

// UnprovenError means that a collection has taken the place of a lost one, and that nothing shows
// that the cluster moved it. Nothing was changed. Retries do not help, an operator has to act.
type UnprovenError struct{ Version, Kind, Why string }

func (e *UnprovenError) Error() string {
	return fmt.Sprintf("kind %s of %s has another collection, which is not accepted by itself: %s", e.Kind, e.Version, e.Why)
}

// movable returns the tokens of the kinds that no application replaces. Controllers follow the
// others by their names.
func movable(d upgradestate.Deployment, ns upgradestate.Namespace) record.Tokens {
	toks := record.Tokens{}
	for _, k := range ns.Kinds {
		if k.ID != "" && !own(d, ns, k) {
			toks[k.Kind] = record.Token{Kind: k.Kind, Name: k.Physical, ID: k.ID, Fixed: k.Fixed}
		}
	}
	return toks
}

// digest identifies a set of collections. Their names change with each switch, and do not matter.
func digest(toks record.Tokens) string {
	var lines []string
	for kind, tok := range toks {
		lines = append(lines, kind+" "+tok.ID+"\n")
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

// Seen is the access to a version's database that Look needs.
type Seen interface {
	record.Reader
	Position(ctx context.Context) (record.Position, error)
}

// Look stores a new sighting of a version's collections. due reports whether an up-to-date one is
// too old; one of other collections always is.
func Look(ctx context.Context, d upgradestate.Deployment, version string, db Seen, store Sightings, due bool) error {
	ns, _ := d.Namespace(version)
	toks := movable(d, ns)
	if len(toks) == 0 {
		return nil
	}
	had, err := store.LoadSighting(ctx, version)
	if err != nil || !due && had.Kinds == digest(toks) {
		return err
	}
	at, err := db.Position(ctx)
	if err != nil {
		return fmt.Errorf("look at the collections of %s: %w", version, err)
	}
	// The snapshot is of committed data from after the position, even if a deposed primary answers.
	// It fails for a collection that has another identity by then. So the removal of any of them
	// comes after the position.
	req := record.ReadRequest{Tokens: toks, NotBefore: at.At, KeysOnly: true}
	for kind := range toks {
		req.Select = append(req.Select, record.Selector{Kind: kind, Key: record.StringKey("dbcontroller")})
	}
	if _, err := db.Read(ctx, req); err != nil {
		return fmt.Errorf("look at the collections of %s: %w", version, err)
	}
	return store.SaveSighting(ctx, version, Sighting{Position: at, Kinds: digest(toks)})
}

// Follow makes the latest sighting one of the collections that were accepted. They come from those
// that it was of, and the changes since then still show how. So a cluster may move them once more
// before the next sighting. d is the record after the acceptance.
func Follow(ctx context.Context, d upgradestate.Deployment, version string, store Sightings) error {
	seen, err := store.LoadSighting(ctx, version)
	if err != nil || seen.Position.IsZero() {
		return err
	}
	ns, _ := d.Namespace(version)
	seen.Kinds = digest(movable(d, ns))
	return store.SaveSighting(ctx, version, seen)
}

// Proven checks that the cluster made the collections that MadeAnew has found in a version's
// database. It returns an *UnprovenError if the changes since the latest sighting do not show that.
func Proven(ctx context.Context, d upgradestate.Deployment, version string, db Mover, store Sightings, anew []upgradestate.Adopted) error {
	ns, _ := d.Namespace(version)
	toks := movable(d, ns)
	unproven := func(kind, why string, args ...any) error {
		return &UnprovenError{Version: version, Kind: kind, Why: fmt.Sprintf(why, args...)}
	}
	if moves, err := db.Moves(ctx); err != nil || !moves {
		if err == nil {
			err = unproven(anew[0].Kind, "its server is not sharded, and moves no collections")
		}
		return err
	}
	seen, err := store.LoadSighting(ctx, version)
	switch {
	case err != nil:
		return err
	case seen.Position.IsZero() || seen.Kinds != digest(toks):
		return unproven(anew[0].Kind, "it was gone before a controller had seen it")
	}
	now, broken, err := db.Moved(ctx, seen.Position, toks)
	if errors.Is(err, record.ErrHistoryLost) {
		return unproven(anew[0].Kind, "the history of changes does not reach back to when it was last seen")
	}
	if err != nil {
		return err
	}
	for _, a := range anew {
		switch why, gone := broken[a.Kind]; {
		case gone:
			return unproven(a.Kind, "%s", why)
		case now[a.Kind].ID != a.Is:
			// It may have been moved once more since the caller looked. The next look shows that.
			return unproven(a.Kind, "the changes of the database lead to collection %s, and %s has its name", now[a.Kind].ID, a.Is)
		}
	}
	return nil
}
