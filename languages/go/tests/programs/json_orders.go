// JSON: struct tags, custom marshalling, unknown fields, streaming decode, errors.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Cents is money; in JSON it is a decimal string.
type Cents int64

func (c Cents) MarshalJSON() ([]byte, error) {
	return json.Marshal(fmt.Sprintf("%d.%02d", c/100, c%100))
}

func (c *Cents) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	value, err := strconv.ParseInt(strings.Replace(text, ".", "", 1), 10, 64)
	*c = Cents(value)
	return err
}

type Line struct {
	SKU   string `json:"sku"`
	Qty   int    `json:"qty"`
	Price Cents  `json:"price"`
}

type Order struct {
	ID    int      `json:"id"`
	Note  *string  `json:"note,omitempty"`
	Lines []Line   `json:"lines"`
	Tags  []string `json:"tags"`
	Total Cents    `json:"total"`
}

const stream = `
{"id": 1, "note": "gift", "lines": [{"sku": "pen", "qty": 3, "price": "1.20"}, {"sku": "ink", "qty": 1, "price": "7.50"}]}
{"id": 2, "lines": [{"sku": "disk", "qty": 2, "price": "49.95"}], "tags": ["rush", "<b>"]}
{"id": "three"}
`

func main() {
	decoder := json.NewDecoder(strings.NewReader(stream))
	for {
		var order Order
		err := decoder.Decode(&order)
		if errors.Is(err, io.EOF) {
			break
		}
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			fmt.Println("field", wrongType.Field, "cannot hold a", wrongType.Value)
			continue
		}
		for _, line := range order.Lines {
			order.Total += Cents(line.Qty) * line.Price
		}
		out, _ := json.Marshal(order)
		fmt.Println(string(out))
	}

	var anything map[string]any
	if err := json.Unmarshal([]byte(`{"b": [1, 2.5, null], "a": {"deep": true}}`), &anything); err != nil {
		panic(err)
	}
	pretty, _ := json.MarshalIndent(anything, "", "  ")
	fmt.Println(string(pretty))
	fmt.Println("valid:", json.Valid([]byte(`[1, 2,]`)))
}
