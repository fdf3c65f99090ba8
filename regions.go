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
	return nil
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
				out[version] = region.Over(store, here.Name, here.Others, v.Regions)
			}
		}
	}
	return out
}
