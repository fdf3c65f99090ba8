package dbcontroller

import (
	"fmt"
	"maps"
	"slices"

	serverapp "dbcontroller.dev/internal/program/server/app"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/transform"
)

// copies returns the kinds that hold the copies of a version and their state.
func (v Version) copies() (local []record.KindSpec) {
	for _, kind := range slices.Sorted(maps.Keys(v.Regions)) {
		local = append(local, record.KindSpec{Name: region.CopiesKind(kind)})
	}
	if len(local) > 0 {
		local = append(local, record.KindSpec{Name: region.StateKind})
	}
	return local
}

// copied returns the declarations of the copies of a version, as a server needs them.
func (v Version) copied() (map[string]serverapp.Copied, error) {
	out := map[string]serverapp.Copied{}
	for kind, k := range v.Regions {
		if err := k.Check(kind); err != nil {
			return nil, err
		}
		m, err := k.Method(v.APIs)
		if err == nil {
			err = k.CheckMove(m)
		}
		if err != nil {
			return nil, err
		}
		// The table only converts messages, so it needs no data.
		read, err := k.Table(&declared{}).Watched(m)
		if err != nil {
			return nil, err
		}
		out[kind] = serverapp.Copied{Kind: k, Method: m, Read: read}
	}
	return out, nil
}

// checkRegions refuses declarations of copies that cannot be made, and kinds that their version does
// not have.
func (s Service) checkRegions() error {
	registry := transform.NewRegistry(s.Name)
	if s.register(registry) != nil {
		return nil // the controller reports this error
	}
	for _, v := range s.Versions {
		fail := func(err error) error {
			return fmt.Errorf("dbcontroller.Service: Regions of version %s: %w", v.Name, err)
		}
		if _, err := v.copied(); err != nil {
			return fail(err)
		}
		for kind := range v.Regions {
			if !slices.ContainsFunc(registry.Kinds(v.Name), func(k record.KindSpec) bool { return k.Name == kind }) {
				return fail(fmt.Errorf("the version has no kind %s", kind))
			}
		}
	}
	return s.checkMoves()
}

// checkMoves refuses a service of which only a part of the versions keeps the state of moves. After a
// switch to another one, two regions would own a record that moves.
func (s Service) checkMoves() error {
	with, without := "", ""
	for _, v := range s.Versions {
		if len(v.Regions) == 0 {
			without = "version " + v.Name
		}
		for kind, k := range v.Regions {
			if k.Move != "" {
				with = kind + " of " + v.Name
			} else {
				without = kind + " of version " + v.Name
			}
		}
	}
	if with != "" && without != "" {
		return fmt.Errorf("dbcontroller.Service: Regions: %s has Move, and %s has not: set it in all of them", with, without)
	}
	for i := 1; with != "" && i < len(s.Versions); i++ {
		for _, sp := range s.Versions[i].Transformers {
			if err := s.carries(s.Versions[i-1], s.Versions[i], sp); err != nil {
				return err
			}
		}
	}
	return nil
}

// carries returns an error if a lens changes the fields that moves need. What a transformer in Go does
// with them is not known.
func (s Service) carries(older, newer Version, sp transform.Spec) error {
	names, known := sp.UpNames.(transform.CarryingMapping)
	if !known || len(sp.New.Kinds) == 0 {
		return nil
	}
	to := newer.Regions[sp.New.Kinds[0].Name]
	for _, kind := range sp.Old.Kinds {
		from, ok := older.Regions[kind.Name]
		for _, f := range []struct{ from, to string }{{from.Field, to.Field}, {from.Move, to.Move}} {
			if got, carried := names.Carried(f.from); ok && (!carried || got != f.to) {
				return fmt.Errorf("dbcontroller.Service: Regions: the lens from %s to %s must carry %s of %s unchanged to %s, or a switch forgets who owns a record that moves", older.Name, newer.Name, f.from, kind.Name, f.to)
			}
		}
	}
	return nil
}

// alone returns the data for the background work of a version, without what other regions own.
func (v Version) alone(data Store, here serverapp.Regions) Store {
	for _, k := range v.Regions {
		if k.Move != "" && here.Name != "" {
			return region.Over(data, here.Name, nil, v.Regions).Alone()
		}
	}
	return data
}

// regional returns the stores with the copies of other regions, if the server has them.
func (s Service) regional(stores map[string]Store, here serverapp.Regions) map[string]Store {
	if here.Name == "" {
		return stores
	}
	out := map[string]Store{}
	for version, store := range stores {
		out[version] = store
		for _, v := range s.Versions {
			if v.Name == version && len(v.Regions) > 0 {
				out[version] = region.Over(store, here.Name, here.Others, v.Regions).Moving(v.Name)
			}
		}
	}
	return out
}
