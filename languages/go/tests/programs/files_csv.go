// Files: CSV written and read in a temporary directory, binary records, gzip, directory walks.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

var rows = [][]string{
	{"region", "item", "quantity"},
	{"north", "anvil", "12"},
	{"south", "rope, 10 m", "3"},
	{"north", `nail "long"`, "500"},
	{"east", "rope, 10 m", "7"},
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	dir, err := os.MkdirTemp("", "files")
	check(err)
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "sales.csv")
	file, err := os.Create(path)
	check(err)
	check(csv.NewWriter(file).WriteAll(rows))
	check(file.Close())

	file, err = os.Open(path)
	check(err)
	records, err := csv.NewReader(file).ReadAll()
	check(err)
	check(file.Close())
	totals := map[string]uint32{}
	for _, record := range records[1:] {
		quantity, err := strconv.ParseUint(record[2], 10, 32)
		check(err)
		totals[record[0]] += uint32(quantity)
	}
	fmt.Println("totals:", totals)
	fmt.Println("item:", records[3][1])

	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	for _, region := range []string{"east", "north", "south"} {
		check(binary.Write(zip, binary.BigEndian, totals[region]))
	}
	check(zip.Close())
	check(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	check(os.WriteFile(filepath.Join(dir, "a", "b", "totals.gz"), packed.Bytes(), 0o600))

	check(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		fmt.Println(filepath.ToSlash(name), entry.IsDir())
		return err
	}))
	unzip, err := gzip.NewReader(&packed)
	check(err)
	raw, err := io.ReadAll(unzip)
	check(err)
	fmt.Println("raw:", raw)
	_, err = os.Stat(filepath.Join(dir, "nothing"))
	fmt.Println("missing:", os.IsNotExist(err))
}
