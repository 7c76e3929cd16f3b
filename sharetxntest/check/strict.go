package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// exact holds an object's fields against a type's: encoding/json would take a
// missing field for zero, and pass over one that is misspelt. also names fields
// that are not the type's and may be there.
func exact(text []byte, typ reflect.Type, also ...string) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	all := fields(typ)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		switch value, there := object[name]; {
		case !there && !f.optional:
			return fmt.Errorf("field %q is missing", name)
		case there && f.object != nil:
			if err := exact(value, f.object); err != nil {
				return fmt.Errorf("field %q: %w", name, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if _, known := all[name]; !known && !slices.Contains(also, name) {
			return fmt.Errorf("there is no field %q", name)
		}
	}
	return nil
}

type field struct {
	optional bool
	object   reflect.Type // of a pointer to a struct
}

// fields lists a struct's fields as encoding/json names them.
func fields(typ reflect.Type) map[string]field {
	all := make(map[string]field)
	for f := range typ.Fields() {
		if f.Anonymous {
			maps.Copy(all, fields(f.Type))
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		is := field{optional: options == "omitempty"}
		if f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct {
			is.object = f.Type.Elem()
		}
		all[name] = is
	}
	return all
}
