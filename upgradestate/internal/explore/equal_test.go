package explore

import (
	"reflect"
	"testing"

	us "dbcontroller.dev/upgradestate"
)

// TestEqualSeesEachField: a field that is added to the record later is compared, too.
func TestEqualSeesEachField(t *testing.T) {
	t.Parallel()
	record := func() us.Deployment {
		return us.Deployment{
			Namespaces: []us.Namespace{{Kinds: []us.Kind{{Pending: &us.Pending{}}}}},
			Upgrade:    &us.Upgrade{}, LastSwitch: &us.Switch{}, Update: &us.Update{}, Retire: &us.Retire{},
			Different: &us.Different{}, Anew: &us.Anew{}, Available: make([]us.Available, 1), Kept: make([]us.Kept, 1),
			History: make([]us.Entry, 1), Breaches: make([]us.Breach, 1), Restored: make([]us.Restored, 1),
			Following: make([]us.Following, 1),
		}
	}
	parts := map[string]func(*us.Deployment) any{
		"deployment": func(d *us.Deployment) any { return d },
		"upgrade":    func(d *us.Deployment) any { return d.Upgrade },
		"policy":     func(d *us.Deployment) any { return &d.Upgrade.Policy },
		"switch":     func(d *us.Deployment) any { return d.LastSwitch },
		"update":     func(d *us.Deployment) any { return d.Update },
		"count":      func(d *us.Deployment) any { return &d.Update.Count },
		"retire":     func(d *us.Deployment) any { return d.Retire },
		"different":  func(d *us.Deployment) any { return d.Different },
		"anew":       func(d *us.Deployment) any { return d.Anew },
		"pace":       func(d *us.Deployment) any { return &d.Pace },
		"available":  func(d *us.Deployment) any { return &d.Available[0] },
		"kept":       func(d *us.Deployment) any { return &d.Kept[0] },
		"entry":      func(d *us.Deployment) any { return &d.History[0] },
		"breach":     func(d *us.Deployment) any { return &d.Breaches[0] },
		"following":  func(d *us.Deployment) any { return &d.Following[0] },
		"restored":   func(d *us.Deployment) any { return &d.Restored[0] },
		"namespace":  func(d *us.Deployment) any { return &d.Namespaces[0] },
		"identity":   func(d *us.Deployment) any { return &d.Namespaces[0].Identity },
		"images":     func(d *us.Deployment) any { return &d.Namespaces[0].Images },
		"kind":       func(d *us.Deployment) any { return &d.Namespaces[0].Kinds[0] },
		"pending":    func(d *us.Deployment) any { return d.Namespaces[0].Kinds[0].Pending },
	}
	if !equal(record(), record()) {
		t.Fatal("a record is not equal to itself")
	}
	for name, part := range parts {
		zero := record()
		for i := range reflect.ValueOf(part(&zero)).Elem().NumField() {
			d := record()
			v := reflect.ValueOf(part(&d)).Elem()
			switch f := v.Field(i); f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Uint64:
				f.SetUint(1)
			case reflect.Int, reflect.Int64:
				f.SetInt(1)
			case reflect.Map:
				f.Set(reflect.ValueOf(map[string]int64{"x": 1}))
			case reflect.Slice, reflect.Pointer:
				if f.IsZero() {
					f.Set(reflect.MakeSlice(f.Type(), 1, 1))
				} else {
					f.SetZero()
				}
			case reflect.Struct: // its fields are a part of their own
				continue
			default:
				t.Fatalf("%s: no other value for %s", name, v.Type().Field(i).Name)
			}
			if equal(d, record()) || equal(record(), d) {
				t.Errorf("%s: %s makes no difference", name, v.Type().Field(i).Name)
			}
		}
	}
}
