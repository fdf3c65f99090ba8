package lenses

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/program/databases"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/exit"
	"dbcontroller.dev/internal/program/dbcontroller/cli/internal/registry"
	"dbcontroller.dev/record"
	"dbcontroller.dev/transform/lens/lint"
)

// trialPrefix starts the name of every scratch collection. The time of creation and a random part
// follow it, so that concurrent commands use different collections. A killed command leaves its
// collections behind. The first command that runs trialAge or more later removes them.
const (
	trialPrefix = "dbc_lint_"
	trialAge    = 24 * time.Hour
)

// newTrial returns the collection prefix of one command.
func newTrial(now time.Time) string {
	return fmt.Sprintf("%s%d_%s.", trialPrefix, now.Unix(), strings.ToLower(rand.Text()[:10]))
}

// leftTrials returns the prefixes of trials in names that are older than trialAge. A prefix with an
// unreadable time counts as old.
func leftTrials(names []string, now time.Time) (left []string) {
	for _, name := range names {
		trial, _, ok := strings.Cut(name, ".")
		made, _, _ := strings.Cut(strings.TrimPrefix(trial, trialPrefix), "_")
		at, err := strconv.ParseInt(made, 10, 64)
		if ok && strings.HasPrefix(trial, trialPrefix) && (err != nil || now.Sub(time.Unix(at, 0)) > trialAge) {
			left = append(left, trial+".")
		}
	}
	slices.Sort(left)
	return slices.Compact(left)
}

// trial is a set of scratch collections in the new version's database. They have the indexes and
// validators that the new kinds will have.
type trial struct {
	ns   databases.Space
	own  string            // prefix of its collection names
	name map[string]string // scratch collection for each kind
	toks record.Tokens
}

// namer is a database that can list its collections. A backend without indexes does not implement
// it.
type namer interface {
	Names(ctx context.Context, prefix string) ([]string, error)
}

func sweepLeft(ctx context.Context, ns databases.Space) error {
	of, ok := ns.(namer)
	if !ok {
		return nil
	}
	names, err := of.Names(ctx, trialPrefix)
	for _, left := range leftTrials(names, time.Now()) {
		if err == nil {
			err = ns.Sweep(ctx, left)
		}
	}
	return err
}

// openTrial creates the scratch collections. Their options and indexes come from the configuration,
// or else from the present collections of the older version, as in an upgrade. The caller closes
// the trial.
func openTrial(ctx context.Context, cfg config.Config, files []lint.File) (out *trial, err error) {
	older, newer := cfg.Kinds[0].Older, cfg.Kinds[0].Newer
	from, err := openQuietly(ctx, cfg, older)
	if err != nil {
		return nil, err
	}
	// The older database is only described, so close it before the records are tried.
	defer func() { err = errors.Join(err, from.Close(context.WithoutCancel(ctx))) }()
	to, err := openQuietly(ctx, cfg, newer)
	if err != nil {
		return nil, err
	}
	out = &trial{ns: to, own: newTrial(time.Now()), name: map[string]string{}, toks: record.Tokens{}}
	// A failed start must not leave collections behind in a production database.
	defer func() {
		if err != nil {
			err = errors.Join(err, out.close())
			out = nil
		}
	}()
	if err := sweepLeft(ctx, to); err != nil {
		return out, err
	}
	for _, f := range files {
		at := slices.IndexFunc(cfg.Kinds, func(k config.Kind) bool { return k.From == f.From && k.To == f.To })
		if at < 0 {
			return out, exit.Usagef("%s: no entry of kinds has from: %s and to: %s, so the indexes of %s are unknown", cfg.Path, f.From, f.To, f.To)
		}
		// Describe the collection as it is now, because an upgrade would carry over that state.
		info, err := from.Describe(ctx, record.KindSpec{Name: f.From, Fixed: true}, f.From)
		if err != nil {
			return out, err
		}
		carried, err := registry.Carries(cfg.Kinds[at], f.Lens)
		if err != nil {
			return out, fmt.Errorf("%s: %w", cfg.Path, err)
		}
		_, made := f.Lens.Kinds(f.From, f.To)
		for _, kind := range made {
			spec := record.KindSpec{Name: out.own + kind, Fixed: true}
			if c, ok := carried[kind]; ok {
				if spec.Shape, err = c.Shape(info.Shape); err != nil {
					return out, fmt.Errorf("%s: %w", cfg.Path, err)
				}
			}
			// Without this, a TTL index would delete records of the sample while they are checked.
			spec.Shape, _ = record.Unexpiring(spec.Shape)
			tok, err := to.Provision(ctx, spec, spec.Name)
			if err != nil {
				return out, fmt.Errorf("a collection like %s: %w", kind, err)
			}
			out.name[kind], out.toks[spec.Name] = spec.Name, tok
		}
	}
	return out, nil
}

// openQuietly opens the database of a version with the settings for background work, so that other
// clients do not notice it.
func openQuietly(ctx context.Context, cfg config.Config, version string) (databases.Space, error) {
	at := slices.IndexFunc(cfg.DBs, func(db config.DB) bool { return db.APIVersion == version })
	ns, err := databases.Open(ctx, cfg.DBs[at], databases.Config{App: "dbcontroller lens", Log: zap.NewNop(), Quiet: true}, cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: dbs[%d], %s: %w", cfg.Path, at, version, err)
	}
	return ns, nil
}

// Try inserts each record in a group of its own and returns one error, or nil, for each.
func (t *trial) Try(ctx context.Context, rs []record.Record) ([]error, error) {
	b := record.Batch{Tokens: t.toks, Epoch: 1, Groups: make([]record.GroupWrite, len(rs))}
	for i, r := range rs {
		name, ok := t.name[r.Kind]
		if !ok {
			return nil, fmt.Errorf("the indexes of %s are unknown", r.Kind)
		}
		b.Groups[i] = record.GroupWrite{Group: fmt.Sprint(i), Writes: []record.Write{{Kind: name, Key: r.Key, Doc: r.Doc}}}
	}
	results, err := t.ns.Load(ctx, b)
	if err != nil {
		return nil, err
	}
	out := make([]error, len(rs))
	for i, r := range results {
		if r.Outcome != record.Refused {
			continue // key collisions are reported without the database
		}
		out[i] = errors.New(strings.TrimPrefix(r.Err.Error(), "insert "+t.name[rs[i].Kind]+": "))
	}
	return out, nil
}

// close removes the scratch collections and closes the database. It uses its own deadline, because
// it also runs after the command was interrupted.
func (t *trial) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(t.ns.Sweep(ctx, t.own), t.ns.Close(ctx))
}
